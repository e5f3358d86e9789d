// Who looks for the rows that see a tile of keys: sequences differ in length.

/// Tiles of keys, 32 neighbours of one sequence a warp: look-ups along its rows are theirs together.
__device__ __forceinline__ void find_row_ranges(const BackwardParameters& p, const ExpressionArguments& e) {
  const ForwardParameters& f = p.forward;
  constexpr int group_keys = 32 * block_n, warps_per_block = prepare_threads / 32;
  const int groups = f.seqlen_kv / group_keys + f.sequences;
  const int heads = mask_knows_heads ? f.heads / gqa_ratio : 1;
#pragma unroll 1
  for (long long item = block_index() * (long long)warps_per_block + thread_index() / 32;
       item < (long long)groups * heads; item += grid_blocks() * (long long)warps_per_block) {
    const int head = (int)(item / groups), place = (int)(item % groups);
    const int i = sequence_at<group_keys>(f.key_starts, f.sequences, f.seqlen_kv, place);
    const Sequence sequence = packed_sequence(f, i).lengths;
    const int first = (place - first_place<group_keys>(f.key_starts, i, f.seqlen_kv)) * group_keys;
    if (first < 0 || first >= sequence.keys) continue;
    const int key = first + thread_index() % 32 * block_n;
    const int n_tile = first_place<block_n>(f.key_starts, i, f.seqlen_kv) + key / block_n;
    store_row_range((sequence.queries + block_m - 1) / block_m, sequence, e, i, head * gqa_ratio, key,
                    key < sequence.keys ? row_range_at(p, head, n_tile) : (int*)0);
  }
}
