// What the blocks of a cluster do together. They compute neighbouring tiles of query rows of one head, which
// meet the same keys: each block loads half of the panels of every tile of K and V and sends them to both.

/// Into a stage of a ring.
template <int panels>
__device__ __forceinline__ void load_panels(u32 to, const TensorMap* map, u32 full_barrier, int row, int head,
                                            int slice) {
  if (clustered) {
#pragma unroll
    for (int i = 0; i < (panels + cluster - 1) / cluster; ++i) {
      const int panel = i * cluster + cluster_rank();
      if (panels % cluster == 0 || panel < panels)
        tensor_load_multicast(to + panel * panel_bytes, map, full_barrier, panel * 64, row, head, slice,
                              (1 << cluster) - 1);
    }
  }
  if (!clustered) {
#pragma unroll
    for (int panel = 0; panel < panels; ++panel)
      tensor_load(to + panel * panel_bytes, map, full_barrier, panel * 64, row, head, slice);
  }
}

/// A stage of a ring: every block that loads into it waits for the readers of all.
__device__ __forceinline__ void release_stage(u32 empty_barrier) {
  if (!clustered) release(empty_barrier);
  if (clustered && thread_index() % 32 < cluster)
    barrier_arrive_in_cluster(map_to_block(empty_barrier, thread_index() % 32));
}

/// Before the first tile: barriers are initialised.
__device__ __forceinline__ void meet_at_start() {
  if (!clustered) block_barrier();
  if (clustered) cluster_barrier();
}

/// A block stays until the others have sent it all that they will.
__device__ __forceinline__ void meet_at_end() {
  if (clustered) cluster_barrier();
}

/// Clusters count as one where tiles are given out.
__device__ __forceinline__ int first_tile() {
  if (clustered) return block_index() / cluster;
  return block_index();
}
