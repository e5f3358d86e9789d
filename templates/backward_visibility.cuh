// Which query rows see a tile of keys through a window.

/// Tiles of query rows [begin, end) of which some row sees a key of the tile: exactly those whose walk
/// visits it.
struct QueryTiles {
  int begin, end;
};

/// `key` is the tile's first key; all KV heads are alike.
__device__ __forceinline__ QueryTiles query_tiles(const BackwardParameters& p, int, int key) {
  const Sequence sequence = sequence_of(p);
  const long long shift = diagonal_shift(sequence), rows = sequence.queries;
  long long begin = 0, end = rows;
  if (limited_right) begin = clamp(key - shift - window_right, 0, rows);
  if (limited_left) end = clamp(minimum(key + block_n, sequence.keys) - shift + window_left, 0, rows);
  QueryTiles tiles;
  tiles.begin = (int)(begin / block_m);
  tiles.end = end > begin ? (int)((end + block_m - 1) / block_m) : tiles.begin;
  return tiles;
}

/// The tiles of keys that a tile of query rows sees, and those that it sees whole.
__device__ __forceinline__ KeyWalk keys_seen(const BackwardParameters& p, const Scope& scope,
                                             const QueryTiles&, int, int row) {
  return start_walk(sequence_of(p), scope, row);
}

/// Deterministic: one thread waits until the tiles of higher keys that tile `tile` of query rows sees have
/// added to it.
__device__ __forceinline__ void wait_for_turn(const BackwardParameters& p, const KeyWalk& seen, int,
                                              int n_tile, int, int tile) {
  if (thread_index() == 0) global_wait_for_turn(p.turns + tile, seen.end - 1 - n_tile);
}
