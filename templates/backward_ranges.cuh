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
__device__ __forceinline__ RowRange rows_that_see(const BackwardParameters& p, const Sequence& sequence,
                                                  const Scope& scope, int key) {
  const int shift = diagonal_shift(sequence), last_key = minimum(key + block_n, sequence.keys) - 1;
  const bool whole = key + block_n <= sequence.keys;
  const KeyLookUps look_ups = look_up_keys(scope, key, last_key);
  RowRange range = {p.forward.m_tiles, 0, 0, 0};
  int run = 0, run_end = 0;  // of full tiles, the last one
#pragma unroll 1
  for (int m = 0; m < p.forward.m_tiles; ++m) {
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

/// All tiles of keys, 32 neighbours a warp.
__device__ __forceinline__ void find_row_ranges(const BackwardParameters& p, const ExpressionArguments& e) {
  const Sequence sequence = sequence_of(p);
  const int kv_heads = p.forward.heads / gqa_ratio, groups = (p.n_tiles + 31) / 32;
  const int heads = p.n_tiles == 0 ? 0 : mask_knows_heads ? p.key_blocks / p.n_tiles : 1;
  constexpr int warps_per_block = prepare_threads / 32;
#pragma unroll 1
  for (long long item = block_index() * (long long)warps_per_block + thread_index() / 32;
       item < (long long)groups * heads; item += grid_blocks() * (long long)warps_per_block) {
    const int head_index = (int)(item / groups), n_tile = (int)(item % groups) * 32 + thread_index() % 32;
    const int batch = head_index / kv_heads, head = head_index % kv_heads * gqa_ratio;
    RowRange all = {p.forward.m_tiles, 0, 0, p.forward.m_tiles};
#pragma unroll 1
    for (int i = 0; i < (mask_knows_heads ? gqa_ratio : 1); ++i) {
      const RowRange own =
          rows_that_see(p, sequence, scope_of(sequence, e, batch, head + i), n_tile * block_n);
      all = {minimum(all.begin, own.begin), larger_of(all.end, own.end),
             larger_of(all.full_begin, own.full_begin), minimum(all.full_end, own.full_end)};
    }
    if (n_tile < p.n_tiles) {
      int* to = row_range_at(p, head_index, n_tile);
      global_store_int(to, minimum(all.begin, all.end));
      global_store_int(to + 1, all.end);
      global_store_int(to + 2, all.full_begin);
      global_store_int(to + 3, all.full_end);
    }
  }
}

/// Deterministic: how many tiles of keys behind this one tile m of query rows is visited by; by a whole warp.
__device__ __forceinline__ int key_tiles_behind(const BackwardParameters& p, int head_index, int n_tile,
                                                int m) {
  u32 count = 0;
#pragma unroll 1
  for (int n = n_tile + 1 + thread_index() % 32; n < p.n_tiles; n += 32) {
    const int* range = row_range_at(p, head_index, n);
    if (m >= global_load(range) && m < global_load(range + 1)) ++count;
  }
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) count += shuffle_xor(count, mask);
  return (int)count;
}
