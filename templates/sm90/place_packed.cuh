// Which tile of query rows comes when: sequences differ in length.

struct Tile {
  int row;  // first query row, counted within the sequence
  int head;
  int batch;  // the sequence
  int first_query, first_key;
  Sequence lengths;
  __device__ __forceinline__ int slice() const { return 0; }  // of tensors that hold all sequences
};

/// Neighbouring numbers are the heads of one tile, which share its keys. All lanes of a warp look together.
__device__ __forceinline__ Tile find_tile(const HopperForwardParameters& p, TileSearch& search, int index) {
  const int place = index / p.forward.heads;
  const PackedTile tile = find_packed_tile(p.forward, search, place);
  return {tile.row,
          index - place * p.forward.heads,
          tile.index,
          tile.sequence.first_query,
          tile.sequence.first_key,
          tile.sequence.lengths};
}

/// Whether none that comes later has rows either.
__device__ __forceinline__ bool ends_at(const HopperForwardParameters& p, const Tile& tile) {
  return tile.lengths.queries == 0 && p.forward.sequences <= most_ordered_sequences;
}

__device__ __forceinline__ Sequence sequence_of(const ForwardParameters&, const Tile& tile) {
  return tile.lengths;
}

/// Words that tell a tile to those who have not searched for it.
constexpr int tile_words = 7;

__device__ __forceinline__ void write_tile(u32 address, const Tile& tile) {
  const int word[tile_words] = {tile.row,         tile.head,      tile.batch,
                                tile.first_query, tile.first_key, tile.lengths.queries,
                                tile.lengths.keys};
#pragma unroll
  for (int i = 0; i < tile_words; ++i) shared_store(address + 4 * i, word[i]);
}

__device__ __forceinline__ Tile tile_of(const int (&word)[tile_words]) {
  return {word[0], word[1], word[2], word[3], word[4], {word[5], word[6]}};
}
