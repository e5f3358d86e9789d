// Shared memory of the backward kernel: K and V of the block's keys, rings of Q and dO with the terms of
// their rows, dS on its way from the consumers' registers to the product that makes dQ, dQ on its way out,
// barriers. Tiles are rows of panels as in the forward kernel.

constexpr int panels_qk = (head_dim_qk + 63) / 64;

constexpr int panels_v = (head_dim_v + 63) / 64;

constexpr int consumers = 2;

constexpr int key_panel_bytes = block_n * 128;

constexpr int key_bytes = panels_qk * key_panel_bytes;

constexpr int value_bytes = panels_v * key_panel_bytes;

constexpr int row_panel_bytes = block_m * 128;

constexpr int query_bytes = panels_qk * row_panel_bytes;

constexpr int gradient_bytes = panels_v * row_panel_bytes;

constexpr int row_terms_bytes = block_m * 4;

constexpr int row_terms_after_lse = stages * row_terms_bytes;

/// dS of 64 keys is one panel: of each consumer's keys, or behind P of the keys that the consumers share.
constexpr int ds_bytes = consumers * row_panel_bytes;

/// A consumer's share of dQ: 64 rows. Where consumers share their keys it goes from registers to global
/// memory.
constexpr int dq_group_bytes = 64 * dq_columns * 4;

/// Warps that send the consumers' dQ or, deterministic, keep the turns of a consumer each.
constexpr int dq_warps = deterministic ? consumers : splits_columns ? 0 : 1;

constexpr int dq_buffer_bytes = splits_columns ? 0 : dq_group_bytes;

struct BackwardLayout {
  u32 base;
  __device__ __forceinline__ u32 key() const { return base; }
  __device__ __forceinline__ u32 value() const { return key() + key_bytes; }
  __device__ __forceinline__ u32 query(int stage) const {
    return value() + value_bytes + stage * query_bytes;
  }
  __device__ __forceinline__ u32 gradient(int stage) const { return query(stages) + stage * gradient_bytes; }
  __device__ __forceinline__ u32 ds(int buffer) const { return gradient(stages) + buffer * ds_bytes; }
  __device__ __forceinline__ u32 dq(int group) const { return ds(2) + group * dq_buffer_bytes; }
  __device__ __forceinline__ u32 lse(int stage) const { return dq(consumers) + stage * row_terms_bytes; }
  __device__ __forceinline__ u32 row_term(int stage) const { return lse(stages) + stage * row_terms_bytes; }
  __device__ __forceinline__ u32 barriers() const { return row_term(stages); }
  __device__ __forceinline__ u32 key_full() const { return barriers(); }
  __device__ __forceinline__ u32 key_empty() const { return barriers() + 8; }
  __device__ __forceinline__ u32 value_full() const { return barriers() + 16; }
  __device__ __forceinline__ u32 tile_full(int slot) const { return barriers() + 24 + 8 * slot; }
  __device__ __forceinline__ u32 tile_empty(int slot) const { return barriers() + 40 + 8 * slot; }
  __device__ __forceinline__ u32 ds_full(int buffer) const { return barriers() + 56 + 8 * buffer; }
  __device__ __forceinline__ u32 ds_empty(int buffer) const { return barriers() + 72 + 8 * buffer; }
  __device__ __forceinline__ u32 query_full(int stage) const { return barriers() + 88 + 8 * stage; }
  __device__ __forceinline__ u32 query_empty(int stage) const { return query_full(stages) + 8 * stage; }
  __device__ __forceinline__ u32 gradient_full(int stage) const { return query_empty(stages) + 8 * stage; }
  __device__ __forceinline__ u32 gradient_empty(int stage) const { return gradient_full(stages) + 8 * stage; }
  __device__ __forceinline__ u32 tile_slot(int slot) const { return gradient_empty(stages) + 4 * slot; }
  __device__ __forceinline__ u32 first_tile() const { return tile_slot(2); }  // deterministic
};

__device__ __forceinline__ void initialize_backward_barriers(const BackwardLayout& layout) {
  barrier_initialize(layout.key_full(), 1);
  barrier_initialize(layout.key_empty(), 4 * consumers);
  barrier_initialize(layout.value_full(), 1);
  for (int i = 0; i < 2; ++i) {
    barrier_initialize(layout.tile_full(i), 1);
    barrier_initialize(layout.tile_empty(i), 4 * consumers + dq_warps);
    barrier_initialize(layout.ds_full(i), 4 * consumers);
    barrier_initialize(layout.ds_empty(i), 4 * consumers);
  }
  for (int stage = 0; stage < stages; ++stage) {
    barrier_initialize(layout.query_full(stage), 1);
    barrier_initialize(layout.query_empty(stage), 4 * consumers);
    barrier_initialize(layout.gradient_full(stage), 1);
    barrier_initialize(layout.gradient_empty(stage), 4 * consumers);
  }
  fence_barrier_initialization();
}
