// Which query rows see a tile of keys.

__device__ __forceinline__ Sequence sequence_of(const BackwardParameters& p) {
  return {p.forward.seqlen_q, p.forward.seqlen_kv};
}

/// Tiles of query rows [begin, end) of which some row sees a key of the tile: exactly those whose walk
/// visits it.
struct QueryTiles {
  int begin, end;
};

/// `key` is the tile's first key.
__device__ __forceinline__ QueryTiles query_tiles(const Sequence& sequence, int key) {
  const long long shift = diagonal_shift(sequence), rows = sequence.queries;
  long long begin = 0, end = rows;
  if (limited_right) begin = clamp(key - shift - window_right, 0, rows);
  if (limited_left) end = clamp(minimum(key + block_n, sequence.keys) - shift + window_left, 0, rows);
  QueryTiles tiles;
  tiles.begin = (int)(begin / block_m);
  tiles.end = end > begin ? (int)((end + block_m - 1) / block_m) : tiles.begin;
  return tiles;
}
