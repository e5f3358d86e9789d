// The kernel before the main one: fills the tables of the mask's look-ups.

constexpr int table_threads = 128;

/// Positions [begin, end) of the sequence of keys, in tiles.
struct TableTiles {
  int begin, end, size;
};

__device__ __forceinline__ TableTiles tiles_of_keys(const ForwardParameters& p) {
  return {0, p.seqlen_kv, block_n};
}

__device__ __forceinline__ TableTiles tiles_of_rows(const ForwardParameters& p) {
  return {p.seqlen_kv - p.seqlen_q, p.seqlen_kv, block_m};
}

/// Of all lanes.
__device__ __forceinline__ void store_table_entry(int* entry, FloatRange range) {
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) {
    range.low = smaller_of(range.low, shuffle_xor(range.low, mask));
    range.high = larger_of(range.high, shuffle_xor(range.high, mask));
  }
  if (thread_index() % 32 != 0) return;
  global_store_float((float*)entry, range.low);
  global_store_float((float*)entry + 1, range.high);
}

__device__ __forceinline__ void store_table_entry(int* entry, IntRange range) {
  const IntRange all = range_of_warp(range);
  if (thread_index() % 32 != 0) return;
  global_store_int(entry, (int)all.low);
  global_store_int(entry + 1, (int)all.high);
}

__device__ __forceinline__ void store_table_entry(int* entry, Truth range) {
  store_table_entry(entry, IntRange{!range.may_fail, range.may_hold});
}

/// The warp writes entry `index` of a table, if it has that many; what is left over is the next table's.
/// `range`: of no elements.
template <typename Range, typename LookUp>
__device__ __forceinline__ long long fill_table(const ForwardParameters& p, const ExpressionArguments& e,
                                                const ExpressionTable& table, const TableTiles& tiles,
                                                long long index, Range range, const LookUp& look_up) {
  const long long parts = (long long)table.batches * table.heads;
  if (index >= 0 && index < parts * table.tiles) {
    const int part = (int)(index / table.tiles), tile = (int)(index % table.tiles);
    const Sequence sequence = {p.seqlen_q, p.seqlen_kv};
    const Scope scope = scope_of(sequence, e, part / table.heads, part % table.heads);
    const int first = tiles.begin + tile * tiles.size, end = minimum(first + tiles.size, tiles.end);
#pragma unroll 4
    for (int at = first + thread_index() % 32; at < end; at += 32)
      range = with_value(range, look_up(scope, at));
    store_table_entry(table.entries + index * 2, range);
  }
  return index - parts * table.tiles;
}
