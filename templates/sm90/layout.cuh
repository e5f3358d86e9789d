// Shared memory: Q per consumer group, the rings of K and V, barriers. A tile is a row of panels, 64 columns
// (128 bytes) wide, swizzled by the copy engine; the last panel is filled up with zeros.

constexpr int panels_qk = (head_dim_qk + 63) / 64;

constexpr int panels_v = (head_dim_v + 63) / 64;

constexpr int group_rows = 64;

constexpr int query_panel_bytes = group_rows * 128;

constexpr int query_bytes = panels_qk * query_panel_bytes;

/// The producer may be so many tiles of query rows ahead, and one more numbered.
constexpr int tile_slots = 2 * query_slots;

constexpr int tile_slot_bytes = 32;

constexpr int panel_bytes = block_n * 128;

constexpr int key_bytes = panels_qk * panel_bytes;

constexpr int value_bytes = panels_v * panel_bytes;

/// Offsets from the start of shared memory. Full barriers: the copy engine has brought a tile; empty: the
/// consumers have left it.
struct Layout {
  u32 base;
  __device__ __forceinline__ u32 query(int slot, int group) const {
    return base + (slot * consumers + group) * query_bytes;
  }
  __device__ __forceinline__ u32 key(int stage) const {
    return base + query_slots * consumers * query_bytes + stage * key_bytes;
  }
  __device__ __forceinline__ u32 value(int stage) const { return key(stages) + stage * value_bytes; }
  __device__ __forceinline__ u32 barriers() const { return value(stages); }
  __device__ __forceinline__ u32 query_full(int slot, int group) const {
    return barriers() + 8 * (slot * consumers + group);
  }
  __device__ __forceinline__ u32 query_empty(int slot, int group) const {
    return query_full(query_slots + slot, group);
  }
  __device__ __forceinline__ u32 ring(int kind, int stage) const {
    return barriers() + 8 * (2 * query_slots * consumers + kind * stages + stage);
  }
  __device__ __forceinline__ u32 key_full(int stage) const { return ring(0, stage); }
  __device__ __forceinline__ u32 key_empty(int stage) const { return ring(1, stage); }
  __device__ __forceinline__ u32 value_full(int stage) const { return ring(2, stage); }
  __device__ __forceinline__ u32 value_empty(int stage) const { return ring(3, stage); }
  __device__ __forceinline__ u32 tile_full(int slot) const { return ring(4, slot); }
  __device__ __forceinline__ u32 tile_slot(int slot) const {
    return ring(4, tile_slots) + tile_slot_bytes * slot;
  }
};

__device__ __forceinline__ void initialize_barriers(const Layout& layout) {
  for (int slot = 0; slot < query_slots; ++slot)
    for (int group = 0; group < consumers; ++group) {
      barrier_initialize(layout.query_full(slot, group), 1);
      barrier_initialize(layout.query_empty(slot, group), 4);  // one arrival a warp of the group
    }
  for (int stage = 0; stage < stages; ++stage) {
    barrier_initialize(layout.key_full(stage), 1);
    barrier_initialize(layout.value_full(stage), 1);
    barrier_initialize(layout.key_empty(stage), 4 * consumers * cluster);
    barrier_initialize(layout.value_empty(stage), 4 * consumers * cluster);
  }
  for (int slot = 0; slot < tile_slots; ++slot) barrier_initialize(layout.tile_full(slot), 1);
  fence_barrier_initialization();
}
