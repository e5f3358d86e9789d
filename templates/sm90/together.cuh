// What the blocks of a cluster do together. They compute neighbouring tiles of query rows of one head, which
// meet the same keys: each block brings its share of the panels of every tile of K and V for all of them.

/// Into a stage of a ring. The barrier of each block expects the bytes of all panels.
template <int panels>
__device__ __forceinline__ void load_shares(u32 to, const TensorMap* map, u32 full_barrier, int row, int head,
                                            int slice) {
#pragma unroll
  for (int i = 0; i < (panels + cluster - 1) / cluster; ++i) {
    const int panel = i * cluster + cluster_rank();
    if (panels % cluster == 0 || panel < panels)
      tensor_load_multicast(to + panel * panel_bytes, map, full_barrier, panel * 64, row, head, slice,
                            (1 << cluster) - 1);
  }
}

/// Every block that loads into a stage waits for the readers of all: what `release` does for this block's own
/// producer, for the others.
__device__ __forceinline__ void release_elsewhere(u32 empty_barrier) {
  const int lane = thread_index() % 32;
  if (lane < cluster && lane != cluster_rank()) barrier_arrive_in_cluster(map_to_block(empty_barrier, lane));
}

/// Clusters count as one where tiles are given out. They take turns: without a mask, which they need, a
/// counter has nothing to even out.
__device__ __forceinline__ int next_tile_in_turn(int index) {
  return index + grid_blocks() / cluster;
}
