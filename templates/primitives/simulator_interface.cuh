// What generated code compiled for the host calls. The simulator fills this table in; generated source holds a
// copy of this very file, so that both sides agree. `site` is the line of the generated source that called.

struct SimulatorInterface {
  // --- where am I
  int (*thread_index)();
  int (*block_index)();
  int (*grid_blocks)();
  int (*cluster_rank)();      // of the block in its cluster
  unsigned (*shared_base)();  // where the block's shared memory begins
  // --- meeting points
  void (*block_barrier)(int site);                       // __syncthreads
  void (*cluster_barrier)(int site);                     // barrier.cluster.arrive, .wait
  void (*warp_barrier)(unsigned mask, int site);         // __syncwarp
  unsigned (*shuffle_xor)(unsigned value, int lane_mask, int site);
  int (*warp_any)(int predicate, int site);              // vote.sync.any
  unsigned (*warp_ballot)(int predicate, int site);      // vote.sync.ballot
  int (*uniform)(int value, int site);                   // redux.sync.max
  void (*named_barrier_wait)(int id, int threads, int site);    // bar.sync
  void (*named_barrier_arrive)(int id, int threads, int site);  // bar.arrive
  // --- shared memory: byte offsets
  void (*shared_load)(void* destination, unsigned address, int bytes, int site);         // 4, 8 or 16 bytes, aligned
  void (*shared_store)(unsigned address, const void* source, int bytes, int site);
  void (*load_matrix_x4)(unsigned* registers, unsigned address, int transposed, int site);   // ldmatrix .m8n8.x4.b16
  // --- barriers in shared memory: mbarrier
  void (*barrier_initialize)(unsigned barrier, int arrivals, int site);
  void (*fence_barrier_initialization)(int site);
  void (*barrier_arrive)(unsigned barrier, int site);
  void (*barrier_arrive_expecting)(unsigned barrier, int bytes, int site);
  void (*barrier_wait)(unsigned barrier, int parity, int site);
  unsigned (*map_to_block)(unsigned address, int rank, int site);  // mapa: the same place in another block of the cluster
  void (*barrier_arrive_in_cluster)(unsigned barrier, int site);   // a mapped one
  // --- global memory, checked against the launch's buffers
  void (*global_load)(void* destination, const void* address, int bytes, int site);
  void (*global_store)(void* address, const void* source, int bytes, int site);
  int (*global_add)(int* address, int value, int site);  // atom.add; returns what was there
  void (*global_sum)(float* address, const float* values, int count, int site);  // red.add, of each value by itself
  void (*global_wait)(const int* address, int least, int site);  // until it holds at least that
  void (*copy_async_16)(unsigned destination, const void* source, int bytes, int site);  // cp.async.cg 16; bytes 0 or 16
  void (*copy_async_commit)(int site);
  void (*copy_async_wait)(int groups_in_flight, int site);
  // cp.async.bulk.tensor; `map`: 128 bytes of simulator/tensor_map.h
  void (*tensor_load)(unsigned destination, const void* map, unsigned barrier, const int* coordinates, int rank, int site);
  // the same to all blocks of the cluster whose bit is set in `blocks`, at the same place of each and its barrier
  void (*tensor_load_multicast)(unsigned destination, const void* map, unsigned barrier, const int* coordinates, int rank,
                                int blocks, int site);
  // --- matrix products: d += a * b, one warp; element_type 0 = fp16, 1 = bf16
  void (*matrix_multiply_16x8x16)(float* d, const unsigned* a, unsigned b0, unsigned b1, int element_type, int site);
  // --- products of a warpgroup: wgmma m64 n k16. `a`: 4 registers, null: shared memory. Descriptors: low words, the high word
  // is 0x40000040. `transposed`: 1: b's rows run along n, 2: a's along m, 3: both
  void (*warpgroup_fence)(int site);
  void (*warpgroup_multiply)(int n, float* d, const unsigned* a, unsigned descriptor_a, unsigned descriptor_b, int accumulate,
                             int transposed, int element_type, int site);
  void (*warpgroup_commit)(int site);
  void (*warpgroup_wait)(int groups_in_flight, int site);
  void (*set_registers)(int count, int increase, int site);  // setmaxnreg
  // --- what the backward pass moves on Hopper
  void (*store_matrix_x4)(unsigned address, const unsigned* registers, int transposed, int site);  // stmatrix .m8n8.x4.b16
  void (*fence_async_shared)(int site);  // fence.proxy.async: the thread's stores before it are visible to products and bulk copies
  void (*bulk_load)(unsigned destination, const void* source, int bytes, unsigned barrier, int site);  // cp.async.bulk
  void (*bulk_reduce_add)(float* destination, unsigned source, int bytes, int site);  // cp.reduce.async.bulk .add.f32
  void (*bulk_commit)(int site);
  void (*bulk_wait)(int groups_in_flight, int only_reads, int site);  // only_reads: shared memory may be written again
  // --- arithmetic; pack_two rounds to nearest even into element_type, low in the lower half
  unsigned (*pack_two)(float low, float high, int element_type);
  float (*unpack)(unsigned element, int element_type);
  float (*exp2)(float);
  float (*log2)(float);
};
