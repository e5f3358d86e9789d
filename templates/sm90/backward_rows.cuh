// Which query rows see a tile of keys through a window.

/// Tiles of query rows that see a tile of keys: [begin, end), of which [full_begin, full_end) need no mask.
struct RowTiles {
  int begin, end, full_begin, full_end;
};

__device__ __forceinline__ RowTiles row_tiles(const BackwardParameters& p, const KeyTile& tile) {
  const Sequence sequence = sequence_of(p);
  const int key = tile.key;
  const long long rows = sequence.queries;
  const long long first = (long long)key - diagonal_shift(sequence);
  const long long last = (long long)minimum(key + block_n, sequence.keys) - 1 - diagonal_shift(sequence);
  long long begin = 0, end = rows, full_begin = 0, full_end = rows;
  if (limited_right) {
    begin = clamp(first - window_right, 0, rows);
    full_begin = clamp(last - window_right, 0, rows);
  }
  if (limited_left) {
    end = clamp(last + window_left + 1, 0, rows);
    full_end = clamp(first + window_left + 1, 0, rows);
  }
  RowTiles tiles;
  tiles.begin = (int)(begin / block_m);
  tiles.end = end > begin ? (int)((end + block_m - 1) / block_m) : tiles.begin;
  tiles.full_begin = (int)((full_begin + block_m - 1) / block_m);
  // Rows past the last one need no mask: their probabilities are zero by their LSE.
  tiles.full_end = full_end == rows ? (int)((rows + block_m - 1) / block_m) : (int)(full_end / block_m);
  if (key + block_n > sequence.keys) tiles.full_end = tiles.full_begin;  // keys past the last one
  return tiles;
}

/// Deterministic: the tiles of higher keys that tile m of query rows sees, as this one's see it too.
__device__ __forceinline__ int key_tiles_before(const BackwardParameters& p, const KeyTile& tile, int m) {
  const Sequence sequence = sequence_of(p);
  const long long last_row = minimum((m + 1) * block_m, sequence.queries) - 1;
  long long last_key = sequence.keys - 1;
  if (limited_right) last_key = clamp(last_row + diagonal_shift(sequence) + window_right, 0, last_key);
  return (int)(last_key / block_n) - tile.key / block_n;
}
