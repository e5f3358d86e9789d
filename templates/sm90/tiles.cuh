// Which tiles of query rows a block computes, and in what order.

/// The producer draws the next tile from a counter and passes it on through two slots of shared memory: worth
/// 7 % under a causal mask against turns, and up to 13 % at 1k keys against a block for each tile.
__device__ __forceinline__ int next_tile(const HopperForwardParameters& p, int index) {
  if (clustered) return next_tile_in_turn(index);
  int tile = 0;
  if (!producer_is_warp || thread_index() == 0)
    tile = p.counters ? global_add(p.counters, 1) + grid_blocks() : p.tiles;
  return producer_is_warp ? uniform(tile) : tile;
}

/// The slot is free: its readers of two rounds ago have released Q of one round ago since, and the producer
/// has waited for that.
__device__ __forceinline__ void publish_tile(const Layout& layout, int round, int index) {
  if (producer_is_warp && thread_index() != 0) return;
  shared_store(layout.tile_slot(round % 2), index);
  barrier_arrive(layout.tile_full(round % 2));
}

/// Only the lane that will release reads, without a branch, behind which the compiler would take the warp for
/// diverged and keep every descriptor in vector registers: 5 % of the time at head dim 128.
__device__ __forceinline__ int receive_tile(const Layout& layout, int round) {
  barrier_wait(layout.tile_full(round % 2), round / 2 % 2);
  return uniform(shared_load_first_lane(layout.tile_slot(round % 2)));  // the largest of the lanes'
}

/// The last block to finish leaves the counters as it found them.
__device__ __forceinline__ void finish_tiles(const HopperForwardParameters& p) {
  if (producer_is_warp && thread_index() != 0) return;
  if (!p.counters) return;
  fence_device();
  if (global_add(p.counters + 1, 1) == grid_blocks() - 1) {
    global_store(p.counters, 0);
    global_store(p.counters + 1, 0);
  }
}
