// dQ added up in the order of the tiles of keys: the same bits on every run. Each consumer's part of a tile
// of query rows has a count of the tiles of keys that have added to it, and each tile of keys waits until
// those of higher keys have. As these come first (take_key_tile), what a block waits for runs already, or is
// done.

/// One warp for each consumer, which adds dQ from the consumer's buffer, or tells it when it may. The next
/// rows' sums are held up by that alone: a consumer goes on until it needs its buffer, or its turn, again.
__device__ __forceinline__ void send_dq_in_turns(const HopperBackwardParameters& p,
                                                 const BackwardLayout& layout, int group) {
  const bool leader = thread_index() % 32 == 0;
  if (!splits_columns) named_barrier_arrive<160>(dq_free(group));
  int index = first_key_tile(layout);
#pragma unroll 1
  for (int round = 0; index < p.backward.key_blocks; ++round) {
    const KeyTile tile = key_tile_at(p.backward, index);
    const RowTiles rows = row_tiles(p.backward, tile);
#pragma unroll 1
    for (int head = tile.head * gqa_ratio; head < tile.head * gqa_ratio + gqa_ratio; ++head) {
      long long row_tile =
          ((long long)tile.batch * p.backward.forward.heads + head) * p.backward.forward.m_tiles + rows.begin;
#pragma unroll 1
      for (int m = rows.begin; m < rows.end; ++m, ++row_tile) {
        const int turn = key_tiles_before(p.backward, tile, m);
        int* const turns = p.backward.turns + row_tile * turns_per_tile + group;
        if (!splits_columns) named_barrier_wait<160>(dq_full(group));
        if (leader) global_wait_for_turn(turns, turn);
        if (splits_columns) {
          warp_barrier();
          named_barrier_arrive<160>(dq_free(group));
          named_barrier_wait<160>(dq_full(group));
        }
        if (!splits_columns) {
          if (leader) {
            fence_async_global();  // who had the turn before added by bulk sums too
            bulk_reduce_add(p.backward.dq_sums + row_tile * dq_tile_floats + group * (dq_group_bytes / 4),
                            layout.dq(group), dq_group_bytes);
            bulk_commit();
            bulk_wait_reads<0>();
          }
          warp_barrier();
          named_barrier_arrive<160>(dq_free(group));
          if (leader) bulk_wait<0>();  // the sums are there, not only read
        }
        if (leader) global_end_turn(turns);
      }
    }
    index = receive_key_tile(layout, round);
  }
}
