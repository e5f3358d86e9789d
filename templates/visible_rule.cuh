// The keys that rows see, as the mask's comparisons say.

/// Of `rows` query rows from `row` on.
__device__ __forceinline__ KeyRange visible_keys(const Sequence& sequence, const Scope& scope, int row,
                                                 int rows) {
  const int shift = diagonal_shift(sequence);
  const int last = minimum(row + rows, sequence.queries) - 1;
  return limited_to(key_range(scope, row + shift, last + shift), sequence.keys);
}
