// The keys that rows see through a window.

/// Of `rows` query rows from `row` on.
__device__ __forceinline__ KeyRange visible_keys(const Sequence& sequence, const Scope&, int row, int rows) {
  const long long keys = sequence.keys, first = (long long)row + diagonal_shift(sequence);
  const long long last = (long long)minimum(row + rows, sequence.queries) - 1 + diagonal_shift(sequence);
  KeyRange range = {0, keys, 0, keys};
  if (limited_left) {
    range.begin = clamp(first - window_left, 0, keys);
    range.full_begin = clamp(last - window_left, 0, keys);
  }
  if (limited_right) {
    range.end = clamp(last + window_right + 1, 0, keys);
    range.full_end = clamp(first + window_right + 1, 0, keys);
  }
  return range;
}
