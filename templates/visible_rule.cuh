// The keys that the rows of a tile see, as the mask's comparisons say.

/// `row` is the tile's first query row.
__device__ __forceinline__ KeyRange visible_keys(const Sequence& sequence, const Scope& scope, int row) {
  const int shift = diagonal_shift(sequence);
  const int last = minimum(row + block_m, sequence.queries) - 1;
  return limited_to(key_range(scope, row + shift, last + shift), sequence.keys);
}
