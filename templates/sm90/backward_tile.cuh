// A consumer over tiles of keys: all blocks of query rows that see a tile, then its dK and dV.

/// All blocks of a tile of keys.
__device__ __forceinline__ void differentiate(const HopperBackwardParameters& p, const BackwardLayout& layout,
                                              const BackwardConsumer& me, const RowTiles& rows,
                                              RowBlock& block, int key, float (&dk)[dk_columns / 2],
                                              float (&dv)[dv_columns / 2]) {
  int left = (rows.end - rows.begin) * gqa_ratio;
  float scores[score_rows / 2], dq[dq_columns / 2];
  begin_blocks(p, layout, me, rows, block, key, scores);
  if (first_differs) {
    if (last_differs && left == 1) {
      differentiate_block<true, true>(p, layout, me, rows, block, key, scores, dq, dk, dv);
    } else {
      differentiate_block<true, false>(p, layout, me, rows, block, key, scores, dq, dk, dv);
    }
    --left;
  }
#pragma unroll 1
  for (; left > (last_differs ? 1 : 0); --left)
    differentiate_block<false, false>(p, layout, me, rows, block, key, scores, dq, dk, dv);
  if (last_differs && left == 1)
    differentiate_block<false, true>(p, layout, me, rows, block, key, scores, dq, dk, dv);
  end_blocks(layout, me, block, dq);
  settle(dk);
  settle(dv);
}

/// This thread's first key in a tile; worked out anew every time, so as to hold no register over the blocks.
__device__ __forceinline__ int key_in_tile(int group) {
  const int thread = (int)opaque(thread_index()) % 128;
  return (splits_columns ? 0 : group * 64) + thread / 32 * 16 + thread % 32 / 4;
}

__device__ __forceinline__ void consume_backward(const HopperBackwardParameters& p,
                                                 const BackwardLayout& layout, const ExpressionArguments& e,
                                                 int group) {
  const BackwardConsumer me = make_consumer(p, layout, e, group);
  if (with_turns && group == 1) pass_turn(me);  // the first turn is group 0's
  RowBlock block = {0, 0, {0, 0}, 0};
  int index = first_key_tile(layout);
#pragma unroll 1
  for (int round = 0; index < p.backward.key_blocks; ++round) {
    KeyTile tile = key_tile_at(p.backward, index);
    RowTiles rows = row_tiles(p.backward, tile);
    rows = {uniform(rows.begin), uniform(rows.end), uniform(rows.full_begin), uniform(rows.full_end)};
    const int count = uniform(block.count);
    block = {rows.begin, tile.batch * p.backward.forward.heads + tile.head * gqa_ratio, ring_place(count),
             count};
    float dk[dk_columns / 2], dv[dv_columns / 2];
#pragma unroll
    for (int i = 0; i < dk_columns / 2; ++i) dk[i] = 0.0f;
#pragma unroll
    for (int i = 0; i < dv_columns / 2; ++i) dv[i] = 0.0f;
    barrier_wait(layout.key_full(), round & 1);
    barrier_wait(layout.value_full(), round & 1);
    if (rows.end > rows.begin)
      differentiate(p, layout, me, rows, block, tile.key + key_in_tile(group), dk, dv);
    release(layout.key_empty());
    tile = key_tile_at(p.backward, (int)opaque((u32)index));
    index = receive_key_tile(layout, round);
    const int key = tile.key + key_in_tile(group), keys = p.backward.forward.seqlen_kv;
    const float dv_factor = with_dropout ? p.backward.forward.dropout.factor : 1.0f;
    store_gradient<panels_v>(p.backward.dv, dv, dv_factor, key, keys, tile.head, tile.batch, 0, head_dim_v,
                             group);
    store_gradient<panels_qk>(p.backward.dk, dk, p.backward.forward.scale, key, keys, tile.head, tile.batch,
                              0, head_dim_qk, group);
  }
}
