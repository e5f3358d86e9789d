// Tiles of query rows that see a tile of keys, as the kernel before found them.

typedef RowRange RowTiles;

__device__ __forceinline__ RowTiles row_tiles(const BackwardParameters& p, const KeyTile& tile) {
  return load_row_range(p, tile.batch * (p.forward.heads / gqa_ratio) + tile.head, tile.key / block_n);
}
