// Which tiles of keys a block computes, and in what order.

struct KeyTile {
  int key;   // first key
  int head;  // KV head
  int batch;
};

/// Tiles are numbered by section (KV heads whose Q, dO and dQ fit L2 together), within it by keys, within
/// those by head. Under a causal mask the first keys are seen by the most rows: the longest tiles come first.
/// Deterministic tiles come from the last keys on: each then meets a tile of query rows after those of higher
/// keys, which it waits for, have left it.
__device__ __forceinline__ KeyTile key_tile_at(const BackwardParameters& p, int index) {
  const int heads = p.key_blocks / p.n_tiles;
  const int per_section = p.section_heads * p.n_tiles;
  const int section = index / per_section, rest = index - section * per_section;
  const int here = minimum(p.section_heads, heads - section * p.section_heads);
  const int n = rest / here, head_index = section * p.section_heads + rest - n * here;
  const int heads_kv = p.forward.heads / gqa_ratio;
  KeyTile tile;
  tile.key = (!deterministic && (limited_right || !limited_left) ? n : p.n_tiles - 1 - n) * block_n;
  tile.batch = head_index / heads_kv;
  tile.head = head_index - tile.batch * heads_kv;
  return tile;
}

/// Where the ring of Q and dO stands after `count` blocks: one number to keep where registers are few.
__device__ __forceinline__ RingPlace ring_place(int count) {
  return {count % stages, count / stages % 2};
}

/// As in the forward kernel, but the slots have a barrier for their readers: a tile without rows waits for
/// nothing else.
__device__ __forceinline__ void publish_key_tile(const BackwardLayout& layout, int round, int index) {
  barrier_wait(layout.tile_empty(round % 2), round / 2 % 2 ^ 1);
  shared_store(layout.tile_slot(round % 2), index);
  barrier_arrive(layout.tile_full(round % 2));
}

__device__ __forceinline__ int receive_key_tile(const BackwardLayout& layout, int round) {
  int index = 0;
  if (thread_index() % 32 == 0) {
    barrier_wait(layout.tile_full(round % 2), round / 2 % 2);
    index = shared_load(layout.tile_slot(round % 2));
    barrier_arrive(layout.tile_empty(round % 2));
  }
  return uniform(index);  // the largest of the lanes': tile numbers are not negative
}

/// Whatever order the GPU starts blocks in, a number taken is higher than those of all that run.
__device__ __forceinline__ int take_key_tile(const HopperBackwardParameters& p) {
  return global_take_number(p.backward.turns + (long long)p.backward.query_blocks * turns_per_tile);
}

/// Where there are no query rows nobody has set the numbers to zero, and nobody waits for a turn.
__device__ __forceinline__ bool takes_numbers(const HopperBackwardParameters& p) {
  return deterministic && p.backward.forward.seqlen_q > 0;
}

/// For first_key_tile, by one thread at the start.
__device__ __forceinline__ void store_first_key_tile(const HopperBackwardParameters& p,
                                                     const BackwardLayout& layout) {
  shared_store(layout.first_tile(), takes_numbers(p) ? take_key_tile(p) : block_index());
}

__device__ __forceinline__ int first_key_tile(const BackwardLayout& layout) {
  if (!deterministic) return block_index();
  return shared_load(layout.first_tile());
}

__device__ __forceinline__ int next_key_tile(const HopperBackwardParameters& p) {
  if (deterministic && takes_numbers(p)) return take_key_tile(p);
  return p.counters ? global_add(p.counters, 1) + grid_blocks() : p.backward.key_blocks;
}

/// The last block to finish leaves the counters as it found them.
__device__ __forceinline__ void finish_key_tiles(const HopperBackwardParameters& p) {
  if (!p.counters) return;
  fence_device();
  if (global_add(p.counters + 1, 1) == grid_blocks() - 1) {
    global_store(p.counters, 0);
    global_store(p.counters + 1, 0);
  }
}
