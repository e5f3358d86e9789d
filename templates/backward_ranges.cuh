// Which query rows see a tile of keys, for masks that are expressions: looked for once by the kernel before
// the main one, kept in the workspace.

/// Tiles of query rows of a head: outside of [begin, end) none of their rows sees a key of the tile of keys,
/// of [full_begin, full_end) every row sees every key.
struct RowRange {
  int begin, end, full_begin, full_end;
};

/// Of tile `n_tile` of a KV head, which is counted over all batches. Masks that do not tell heads and batches
/// apart have one range for all.
__device__ __forceinline__ int* row_range_at(const BackwardParameters& p, int head_index, int n_tile) {
  return p.row_ranges + ((long long)(mask_knows_heads ? head_index : 0) * p.n_tiles + n_tile) * 4;
}

/// None where there are no rows: then nobody looked.
__device__ __forceinline__ RowRange load_row_range(const BackwardParameters& p, int head_index, int n_tile) {
  if (p.forward.m_tiles == 0) return {0, 0, 0, 0};
  const int* range = row_range_at(p, head_index, n_tile);
  return {global_load(range), global_load(range + 1), global_load(range + 2), global_load(range + 3)};
}

/// The rows of one query head that see this lane's tile of keys, which begins with `key`; `full_*` is the
/// longest run of full tiles. All lanes of a warp look at the same tile of query rows, so that look-ups along
/// its rows are theirs together.
__device__ __forceinline__ RowRange rows_that_see(int m_tiles, const Sequence& sequence, const Scope& scope,
                                                  int key) {
  const int shift = diagonal_shift(sequence), last_key = minimum(key + block_n, sequence.keys) - 1;
  const bool whole = key + block_n <= sequence.keys;
  const KeyLookUps look_ups = look_up_keys(scope, key, last_key);
  RowRange range = {m_tiles, 0, 0, 0};
  int run = 0, run_end = 0;  // of full tiles, the last one
#pragma unroll 1
  for (int m = 0; m < m_tiles; ++m) {
    const int row = m * block_m, last_row = minimum(row + block_m, sequence.queries) - 1;
    const KeyRange keys = visible_keys(sequence, scope, row, block_m);
    const TileState state = tile_state(scope, look_ups, row + shift, last_row + shift, key, last_key);
    if (state == TileState::empty || keys.begin > last_key || keys.end <= key) continue;
    if (range.end == 0) range.begin = m;
    range.end = m + 1;
    const bool full = state == TileState::full || (keys.full_begin <= key && keys.full_end > last_key);
    if (!full || !whole) continue;
    if (run_end != m) run = m;
    run_end = m + 1;
    if (run_end - run > range.full_end - range.full_begin) range.full_begin = run, range.full_end = run_end;
  }
  return range;
}

/// Stores the rows that see this lane's tile of keys, which begins with `key`, by the query heads from `head`
/// on that share its KV head. `to` is null where there is no such tile.
__device__ __forceinline__ void store_row_range(int m_tiles, const Sequence& sequence,
                                                const ExpressionArguments& e, int batch, int head, int key,
                                                int* to) {
  RowRange all = {m_tiles, 0, 0, m_tiles};
#pragma unroll 1
  for (int i = 0; i < (mask_knows_heads ? gqa_ratio : 1); ++i) {
    const RowRange own = rows_that_see(m_tiles, sequence, scope_of(sequence, e, batch, head + i), key);
    all = {minimum(all.begin, own.begin), larger_of(all.end, own.end),
           larger_of(all.full_begin, own.full_begin), minimum(all.full_end, own.full_end)};
  }
  if (!to) return;
  global_store_int(to, minimum(all.begin, all.end));
  global_store_int(to + 1, all.end);
  global_store_int(to + 2, all.full_begin);
  global_store_int(to + 3, all.full_end);
}

/// Deterministic: how many tiles of keys behind this one, up to `end`, tile m of query rows is visited by; by
/// a whole warp.
__device__ __forceinline__ int key_tiles_behind(const BackwardParameters& p, int head_index, int n_tile,
                                                int end, int m) {
  u32 count = 0;
#pragma unroll 1
  for (int n = n_tile + 1 + thread_index() % 32; n < end; n += 32) {
    const int* range = row_range_at(p, head_index, n);
    if (m >= global_load(range) && m < global_load(range + 1)) ++count;
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) count += shuffle_xor(count, mask);
  return (int)count;
}
