// The last tile of a sequence's values, where sequences follow each other. It reaches into the next one,
// whose keys have probability 0; but 0 times an infinite value is not 0.

/// The barrier of such tiles, and the parity of its current phase.
__device__ __forceinline__ u32 last_values(const Layout& layout) {
  return layout.tile_slot(tile_slots);
}

__device__ __forceinline__ void initialize_last_values(const Layout& layout) {
  barrier_initialize(last_values(layout), 1);
  shared_store(last_values(layout) + 8, 0);
}

/// Whether the tile of values reaches into the next sequence.
__device__ __forceinline__ bool holds_other_values(const Tile& tile, int key) {
  return key + block_n > tile.lengths.keys;
}

/// Brings in the last tile and sets the rows of other sequences to zero before the consumers may read them.
__device__ __forceinline__ void load_last_values(const HopperForwardParameters& p, const Layout& layout,
                                                 const RingPlace& place, int key, const Tile& tile) {
  const u32 arrived = last_values(layout), values = layout.value(place.stage);
  const int lane = thread_index(), parity = shared_load(arrived + 8);
  if (lane == 0) {
    barrier_wait(layout.value_empty(place.stage), place.parity ^ 1);
    barrier_arrive_expecting(arrived, value_bytes);
#pragma unroll
    for (int panel = 0; panel < panels_v; ++panel)
      tensor_load(values + panel * panel_bytes, &p.v_map, arrived, panel * 64, tile.first_key + key,
                  tile.head / gqa_ratio, tile.slice());
  }
  barrier_wait(arrived, parity);
  const int first = (tile.lengths.keys - key) * 128 + lane * 16;
#pragma unroll
  for (int panel = 0; panel < panels_v; ++panel)
#pragma unroll 1
    for (int at = first; at < panel_bytes; at += 512)
      shared_store_16(values + panel * panel_bytes + at, 0.0f, 0.0f, 0.0f, 0.0f);
  fence_async_shared();
  warp_barrier();
  if (lane == 0) {
    shared_store(arrived + 8, parity ^ 1);
    barrier_arrive(layout.value_full(place.stage));
  }
  warp_barrier();
}
