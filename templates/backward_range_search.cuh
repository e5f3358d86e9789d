// Who looks for the rows that see a tile of keys: all sequences have the same lengths.

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
    store_row_range(p.forward.m_tiles, sequence, e, head_index / kv_heads, head_index % kv_heads * gqa_ratio,
                    n_tile * block_n, n_tile < p.n_tiles ? row_range_at(p, head_index, n_tile) : (int*)0);
  }
}
