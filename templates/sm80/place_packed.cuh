// Which tile of query rows a block computes: sequences differ in length. It is looked up once and kept in
// shared memory, behind the tiles: the main loop has no registers to spare.

struct BlockPlace {
  int batch, head, row;
  long long head_index;
  int first_query, first_key;
};

__device__ __forceinline__ u32 kept_place() {
  return shared_base() + query_tile_bytes + stages * (key_tile_bytes + value_tile_bytes);
}

__device__ __forceinline__ BlockPlace recall_place(const ForwardParameters& p) {
  const u32 kept = kept_place();
  BlockPlace place;
  place.head = block_index() % p.heads;
  place.head_index = place.head;
  place.batch = shared_load(kept);
  place.row = shared_load(kept + 4);
  place.first_query = shared_load(kept + 8);
  place.first_key = shared_load(kept + 12);
  return place;
}

/// Neighbouring blocks compute the heads of one tile, which share its keys.
__device__ __forceinline__ BlockPlace find_place(const ForwardParameters& p) {
  if (thread_index() < 32) {
    TileSearch search = start_search(p);
    const PackedTile tile = find_packed_tile(p, search, block_index() / p.heads);
    const u32 kept = kept_place();
    if (thread_index() == 0) {
      shared_store(kept, tile.index);
      shared_store(kept + 4, tile.row);
      shared_store(kept + 8, tile.sequence.first_query);
      shared_store(kept + 12, tile.sequence.first_key);
      shared_store(kept + 16, tile.sequence.lengths.queries);
      shared_store(kept + 20, tile.sequence.lengths.keys);
    }
  }
  block_barrier();
  return recall_place(p);
}

__device__ __forceinline__ Sequence sequence_of(const ForwardParameters&) {
  return {shared_load(kept_place() + 16), shared_load(kept_place() + 20)};
}
