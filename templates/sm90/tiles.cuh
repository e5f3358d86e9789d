// Which tiles of query rows a block computes, and in what order.

/// The producer draws the next tile from a counter and passes it on through slots of shared memory: worth
/// 7 % under a causal mask against turns, and up to 13 % at 1k keys against a block for each tile.
__device__ __forceinline__ int next_tile(const HopperForwardParameters& p, int index) {
  if (clustered) return next_tile_in_turn(index);
  int tile = 0;
  if (!producer_is_warp || thread_index() == 0)
    tile = p.counters ? global_add(p.counters, 1) + grid_blocks() : p.tiles;
  return producer_is_warp ? uniform(tile) : tile;
}

/// The slot is free: its readers of tile_slots rounds ago have released Q of a round since, and the producer
/// has waited for that.
__device__ __forceinline__ void publish_tile(const Layout& layout, int round, int index, const Tile& tile) {
  if (producer_is_warp && thread_index() != 0) return;
  shared_store(layout.tile_slot(round % tile_slots), index);
  write_tile(layout.tile_slot(round % tile_slots) + 4, tile);
  barrier_arrive(layout.tile_full(round % tile_slots));
}

/// Only the lane that will release reads, without a branch, behind which the compiler would take the warp for
/// diverged and keep every descriptor in vector registers: 5 % of the time at head dim 128.
__device__ __forceinline__ int receive_tile(const Layout& layout, int round, Tile& tile) {
  barrier_wait(layout.tile_full(round % tile_slots), round / tile_slots % 2);
  const u32 slot = layout.tile_slot(round % tile_slots);
  int word[tile_words];
#pragma unroll
  for (int i = 0; i < tile_words; ++i)
    word[i] = uniform(shared_load_first_lane(slot + 4 + 4 * i));  // the largest of the lanes'
  tile = tile_of(word);
  return uniform(shared_load_first_lane(slot));
}

/// Searching takes a pass over the lengths, so that the consumers wait for what the producer finds.
constexpr int found_by_producer = packed_layout ? 1 : 0;

__device__ __forceinline__ int first_tile(const HopperForwardParameters& p, const Layout& layout,
                                          Tile& tile) {
  if (packed_layout) return receive_tile(layout, 0, tile);
  int index = block_index();
  if (clustered) index /= cluster;
  TileSearch search = start_search(p.forward);
  tile = find_tile(p, search, index);
  return index;
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
