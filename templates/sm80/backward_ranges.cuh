// Which query rows see a tile of keys, as the kernel before found it.

typedef RowRange QueryTiles;

/// `key` is the tile's first key; KV heads are counted over all batches.
__device__ __forceinline__ QueryTiles query_tiles(const BackwardParameters& p, int head_index, int key) {
  if (packed_layout && sequence_of(p).queries == 0) return {0, 0, 0, 0};  // nor a tile, it may be
  return load_row_range(p, head_index, first_key_tile() + key / block_n);
}

/// Tiles of keys, of the one whose rows are known: a tile of query rows sees it whole, or no tile.
struct KeysSeen {
  int full_begin, full_end;
};

__device__ __forceinline__ KeysSeen keys_seen(const BackwardParameters& p, const Scope&,
                                              const QueryTiles& tiles, int m_tile, int) {
  const bool whole = m_tile >= tiles.full_begin && m_tile < tiles.full_end;
  return {0, whole ? p.n_tiles : 0};
}

/// Deterministic: one thread waits until the tiles of higher keys that visit `m_tile` of a head, `tile` of
/// all, have added to it.
__device__ __forceinline__ void wait_for_turn(const BackwardParameters& p, const KeysSeen&, int head_index,
                                              int n_tile, int m_tile, int tile) {
  if (thread_index() >= 32) return;
  const int turn = key_tiles_behind(p, head_index, first_key_tile() + n_tile, end_of_key_tiles(p), m_tile);
  if (thread_index() == 0) global_wait_for_turn(p.turns + tile, turn);
}
