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
__device__ __forceinline__ Tile tile_at(const HopperForwardParameters& p, int index) {
  const int place = index / p.forward.heads;
  const PackedTile tile = find_packed_tile(p.forward, place);
  return {tile.row,
          index - place * p.forward.heads,
          tile.index,
          tile.sequence.first_query,
          tile.sequence.first_key,
          tile.sequence.lengths};
}

__device__ __forceinline__ Sequence sequence_of(const ForwardParameters&, const Tile& tile) {
  return tile.lengths;
}
