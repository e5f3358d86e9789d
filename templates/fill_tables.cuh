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
__device__ __forceinline__ void store_table_entry(int* entry, float low, float high) {
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) {
    low = smaller_of(low, shuffle_xor(low, mask));
    high = larger_of(high, shuffle_xor(high, mask));
  }
  if (thread_index() % 32 != 0) return;
  global_store_float((float*)entry, low);
  global_store_float((float*)entry + 1, high);
}

__device__ __forceinline__ void store_table_entry(int* entry, int low, int high) {
  const IntRange range = range_of_warp({low, high});
  if (thread_index() % 32 != 0) return;
  global_store_int(entry, (int)range.low);
  global_store_int(entry + 1, (int)range.high);
}

/// NaN makes the range [-inf, inf].
__device__ __forceinline__ void take_value(float value, float& low, float& high) {
  const bool is_nan = value != value;
  low = is_nan ? -INFINITY : smaller_of(low, value);
  high = is_nan ? INFINITY : larger_of(high, value);
}

__device__ __forceinline__ void take_value(int value, int& low, int& high) {
  low = smaller_of(low, value);
  high = larger_of(high, value);
}

/// The warp writes entry `index` of a table, if it has that many; what is left over is the next table's.
/// `low` and `high`: of no elements.
template <typename Value, typename LookUp>
__device__ __forceinline__ long long fill_table(const ForwardParameters& p, const ExpressionArguments& e,
                                                const ExpressionTable& table, const TableTiles& tiles,
                                                long long index, Value low, Value high,
                                                const LookUp& look_up) {
  const long long parts = (long long)table.batches * table.heads;
  if (index >= 0 && index < parts * table.tiles) {
    const int part = (int)(index / table.tiles), tile = (int)(index % table.tiles);
    const Sequence sequence = {p.seqlen_q, p.seqlen_kv};
    const Scope scope = scope_of(sequence, e, part / table.heads, part % table.heads);
    const int first = tiles.begin + tile * tiles.size, end = minimum(first + tiles.size, tiles.end);
#pragma unroll 4
    for (int at = first + thread_index() % 32; at < end; at += 32)
      take_value((Value)look_up(scope, at), low, high);
    store_table_entry(table.entries + index * 2, low, high);
  }
  return index - parts * table.tiles;
}
