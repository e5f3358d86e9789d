// Which tile of keys a block owns: sequences differ in length. It is looked up once and kept in shared
// memory, behind the tiles: the main loop has no registers to spare.

struct KeyPlace {
  int batch, kv_head, key;  // batch: the sequence; key: counted within it
  int first_key;
  __device__ __forceinline__ int slice() const { return 0; }  // of tensors that hold all sequences
};

__device__ __forceinline__ u32 kept_place() {
  return shared_base() + key_tile_bytes + value_tile_bytes + stages * query_stage_bytes +
         2 * score_tile_bytes;
}

__device__ __forceinline__ KeyPlace recall_key_place(const BackwardParameters& p, int block) {
  const u32 kept = kept_place();
  KeyPlace place;
  place.kv_head = block % (p.forward.heads / gqa_ratio);
  place.batch = shared_load(kept);
  place.key = shared_load(kept + 4);
  place.first_key = shared_load(kept + 8);
  return place;
}

/// Neighbouring blocks have the heads of one tile. Deterministic blocks start with the last keys, as without
/// sequences. Where no tile has the block's place its sequence has no rows and no keys.
__device__ __forceinline__ KeyPlace find_key_place(const BackwardParameters& p, int block) {
  if (thread_index() < 32) {
    const ForwardParameters& f = p.forward;
    int place = block / (f.heads / gqa_ratio);
    if (deterministic) place = p.n_tiles - 1 - place;
    const int i = sequence_at<block_n>(f.key_starts, f.sequences, f.seqlen_kv, place);
    PackedSequence sequence = packed_sequence(f, i);
    const int key = (place - first_place<block_n>(f.key_starts, i, f.seqlen_kv)) * block_n;
    if (key < 0 || key >= sequence.lengths.keys) sequence.lengths = {0, 0};
    const u32 kept = kept_place();
    if (thread_index() == 0) {
      shared_store(kept, i);
      shared_store(kept + 4, key);
      shared_store(kept + 8, sequence.first_key);
      shared_store(kept + 12, sequence.first_query);
      shared_store(kept + 16, first_place<block_m>(f.query_starts, i, f.seqlen_q));
      shared_store(kept + 20, sequence.lengths.queries);
      shared_store(kept + 24, sequence.lengths.keys);
      shared_store(kept + 28, place - key / block_n);
    }
  }
  block_barrier();
  return recall_key_place(p, block);
}

__device__ __forceinline__ Sequence sequence_of(const BackwardParameters&) {
  return {shared_load(kept_place() + 20), shared_load(kept_place() + 24)};
}

/// Counted over all sequences, from the head among those of q.
__device__ __forceinline__ int head_of_all(const BackwardParameters& p, int head_index) {
  return shared_load(kept_place()) * p.forward.heads + head_index;
}

/// The sequence's first row in q, and its first tile in a head's part of the workspace.
__device__ __forceinline__ int first_query() {
  return shared_load(kept_place() + 12);
}

__device__ __forceinline__ int first_query_tile() {
  return shared_load(kept_place() + 16);
}

/// Its tiles of keys in a head's part of the workspace.
__device__ __forceinline__ int first_key_tile() {
  return shared_load(kept_place() + 28);
}

__device__ __forceinline__ int end_of_key_tiles(const BackwardParameters& p) {
  return first_key_tile() + (sequence_of(p).keys + block_n - 1) / block_n;
}
