// Which tile of keys a block owns: all sequences have the same lengths.

struct KeyPlace {
  int batch, kv_head, key;
  static constexpr int first_key = 0;
  __device__ __forceinline__ int slice() const { return batch; }  // of the tensors
};

/// Blocks in the order of their start. Tiles of a section's heads go together: under a causal mask the first
/// keys have the most rows and start first. Deterministic blocks start with the last keys: each adds to a
/// tile of query rows after those of higher keys, so it waits for earlier blocks alone.
__device__ __forceinline__ KeyPlace find_key_place(const BackwardParameters& p, int block) {
  const int heads = p.forward.heads / gqa_ratio, all_heads = p.key_blocks / p.n_tiles;
  const int section = block / (p.section_heads * p.n_tiles), first_head = section * p.section_heads;
  const int within = block - first_head * p.n_tiles;
  const int section_heads = minimum(p.section_heads, all_heads - first_head);
  const int head_index = first_head + within % section_heads, n_tile = within / section_heads;
  KeyPlace place;
  place.batch = head_index / heads;
  place.kv_head = head_index % heads;
  place.key = (deterministic ? p.n_tiles - 1 - n_tile : n_tile) * block_n;
  return place;
}

/// The same once more, after find_key_place.
__device__ __forceinline__ KeyPlace recall_key_place(const BackwardParameters& p, int block) {
  return find_key_place(p, block);
}

/// Counted over all batches, from the head among those of q.
__device__ __forceinline__ int head_of_all(const BackwardParameters&, int head_index) {
  return head_index;
}

/// The sequence's first row in q, and its first tile in a head's part of the workspace.
__device__ __forceinline__ int first_query() {
  return 0;
}

__device__ __forceinline__ int first_query_tile() {
  return 0;
}

/// Its tiles of keys in a head's part of the workspace.
__device__ __forceinline__ int first_key_tile() {
  return 0;
}

__device__ __forceinline__ int end_of_key_tiles(const BackwardParameters& p) {
  return p.n_tiles;
}
