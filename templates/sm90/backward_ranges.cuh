// Tiles of query rows that see a tile of keys, as the kernel before found them.

typedef RowRange RowTiles;

__device__ __forceinline__ RowTiles row_tiles(const BackwardParameters& p, const KeyTile& tile) {
  return load_row_range(p, tile.batch * (p.forward.heads / gqa_ratio) + tile.head, tile.key / block_n);
}

/// Deterministic: the tiles of higher keys that tile m of query rows sees.
__device__ __forceinline__ int key_tiles_before(const BackwardParameters& p, const KeyTile& tile, int m) {
  return key_tiles_behind(p, tile.batch * (p.forward.heads / gqa_ratio) + tile.head, tile.key / block_n,
                          p.n_tiles, m);
}
