// Which keys the rows of a tile see. Positions are 64-bit while window sides are added to them.

struct Sequence {  // that a tile belongs to
  int queries, keys;
};

__device__ __forceinline__ Sequence sequence_of(const ForwardParameters& p) {
  return {p.seqlen_q, p.seqlen_kv};
}

/// Tiles of keys that a tile of rows visits: [begin, end), of which [full_begin, full_end) need no mask.
struct KeyTiles {
  int begin, end, full_begin, full_end;
};

__device__ __forceinline__ long long clamp(long long value, long long low, long long high) {
  return value < low ? low : value > high ? high : value;
}

/// Query row + shift is the key that the row stands at.
__device__ __forceinline__ int diagonal_shift(const Sequence& sequence) {
  return aligned_bottom_right ? sequence.keys - sequence.queries : 0;
}

/// `row` is the tile's first query row.
__device__ __forceinline__ KeyTiles key_tiles(const Sequence& sequence, int row) {
  const long long keys = sequence.keys, first = (long long)row + diagonal_shift(sequence);
  const long long last = (long long)minimum(row + block_m, sequence.queries) - 1 + diagonal_shift(sequence);
  long long begin = 0, end = keys, full_begin = 0, full_end = keys;
  if (limited_left) {
    begin = clamp(first - window_left, 0, keys);
    full_begin = clamp(last - window_left, 0, keys);
  }
  if (limited_right) {
    end = clamp(last + window_right + 1, 0, keys);
    full_end = clamp(first + window_right + 1, 0, keys);
  }
  KeyTiles tiles;
  tiles.begin = (int)(begin / block_n);
  tiles.end = end > begin ? (int)((end + block_n - 1) / block_n) : tiles.begin;
  tiles.full_begin = (int)((full_begin + block_n - 1) / block_n);
  tiles.full_end = (int)(full_end / block_n);
  return tiles;
}

/// The mask's limits on the keys of one row, counted from some key: it sees low <= key < high. The next row's
/// are one higher. Saturated at 2^30, far beyond any tile.
struct KeyLimits {
  int low, high;
};

__device__ __forceinline__ KeyLimits key_limits(const Sequence& sequence, int row, int key) {
  constexpr long long far = 1 << 30;
  const long long position = (long long)row + diagonal_shift(sequence) - key;
  KeyLimits limits = {(int)-far, (int)far};
  if (limited_left) limits.low = (int)clamp(position - window_left, -far, far);
  if (limited_right) limits.high = (int)clamp(position + window_right + 1, -far, far);
  return limits;
}
