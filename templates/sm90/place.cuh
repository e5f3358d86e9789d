// Which tile of query rows comes when: all sequences have the same lengths.

struct Tile {
  int row, head, batch;  // row: the first query row
  static constexpr int first_query = 0, first_key = 0;
  __device__ __forceinline__ int slice() const { return batch; }
};

/// Tiles are numbered by section (heads whose K and V fit L2 together), within it by rows, within those by
/// head. Under a causal mask rows count from the end: the longest tiles come first.
__device__ __forceinline__ Tile tile_at(const HopperForwardParameters& p, int index) {
  const int heads = p.tiles / p.forward.m_tiles;
  const int per_section = p.section_heads * p.forward.m_tiles;
  const int section = index / per_section, rest = index - section * per_section;
  const int here = minimum(p.section_heads, heads - section * p.section_heads);
  const int m = rest / here, head_index = section * p.section_heads + rest - m * here;
  Tile tile;
  tile.row = (last_rows_first ? p.forward.m_tiles - 1 - m : m) * block_m;
  if (clustered) tile.row = tile.row * cluster + cluster_rank() * block_m;
  tile.batch = head_index / p.forward.heads;
  tile.head = head_index - tile.batch * p.forward.heads;
  return tile;
}

__device__ __forceinline__ Sequence sequence_of(const ForwardParameters& p, const Tile&) {
  return {p.seqlen_q, p.seqlen_kv};
}

/// Words that tell a tile to those who have not worked it out: divisions take 100 instructions.
constexpr int tile_words = 3;

__device__ __forceinline__ void write_tile(u32 address, const Tile& tile) {
  shared_store(address, tile.row);
  shared_store(address + 4, tile.head);
  shared_store(address + 8, tile.batch);
}

__device__ __forceinline__ Tile tile_of(const int (&word)[tile_words]) {
  return {word[0], word[1], word[2]};
}
