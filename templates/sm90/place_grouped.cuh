// Which tile of query rows comes when, where query heads of one KV head are folded into the rows of a tile:
// row r of it is position r / pack_group of head r % pack_group. Tiles, and block_m with them, count
// positions.

struct Tile {
  int row, head, batch;  // the first position, the first query head
  static constexpr int first_query = 0, first_key = 0;
  __device__ __forceinline__ int slice() const { return batch; }
};

/// Numbered as without groups; a group of heads stands for a head.
__device__ __forceinline__ Tile tile_at(const HopperForwardParameters& p, int index) {
  const int groups = p.tiles / p.forward.m_tiles, groups_a_batch = p.forward.heads / pack_group;
  const int per_section = p.section_heads * p.forward.m_tiles;
  const int section = index / per_section, rest = index - section * per_section;
  const int here = minimum(p.section_heads, groups - section * p.section_heads);
  const int m = rest / here, group = section * p.section_heads + rest - m * here;
  Tile tile;
  tile.row = (last_rows_first ? p.forward.m_tiles - 1 - m : m) * block_m;
  tile.batch = group / groups_a_batch;
  tile.head = (group - tile.batch * groups_a_batch) * pack_group;
  return tile;
}

__device__ __forceinline__ Sequence sequence_of(const ForwardParameters& p, const Tile&) {
  return {p.seqlen_q, p.seqlen_kv};
}

constexpr int tile_words = 3;

__device__ __forceinline__ void write_tile(u32 address, const Tile& tile) {
  shared_store(address, tile.row);
  shared_store(address + 4, tile.head);
  shared_store(address + 8, tile.batch);
}

__device__ __forceinline__ Tile tile_of(const int (&word)[tile_words]) {
  return {word[0], word[1], word[2]};
}

/// The positions of a consumer, of all heads of the group: the map's boxes are heads by positions.
__device__ __forceinline__ void load_grouped_query(const HopperForwardParameters& p, const Layout& layout,
                                                   int slot, int consumer, const Tile& tile) {
#pragma unroll
  for (int panel = 0; panel < panels_qk; ++panel)
    tensor_load(layout.query(slot, consumer) + panel * query_panel_bytes, &p.q_map,
                layout.query_full(slot, consumer), panel * 64, tile.head,
                tile.row + consumer * (block_m / consumers), tile.batch);
}

/// The query head of this thread's row of that half.
__device__ __forceinline__ int grouped_head(const Tile& tile, int half) {
  return tile.head + (thread_index() / 32 * 16 + thread_index() % 32 / 4 + half * 8) % pack_group;
}
