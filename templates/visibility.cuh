// Which keys the rows of a tile see. Positions are 64-bit while window sides are added to them.

struct Sequence {  // that a tile belongs to
  int queries, keys;
};

__device__ __forceinline__ long long clamp(long long value, long long low, long long high) {
  return value < low ? low : value > high ? high : value;
}

/// Query row + shift is the key that the row stands at.
__device__ __forceinline__ int diagonal_shift(const Sequence& sequence) {
  return aligned_bottom_right ? sequence.keys - sequence.queries : 0;
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
