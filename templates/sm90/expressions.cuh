// The spec's softcap or expressions, on a consumer's scores. `row` is this thread's first query row, `key`
// the tile's first key.

/// What the spec makes of each product: softcap or expression.
__device__ __forceinline__ void change_scores(float (&scores)[block_n / 2], float scale,
                                              const Sequence& sequence, const Scope& scope, int row,
                                              int key) {
  const Positions at = positions_of(sequence, row, key + thread_index() % 4 * 2);
#pragma unroll
  for (int i = 0; i < block_n / 2; ++i)
    scores[i] = changed_score(scope, scores[i], scale, at, i / 2 % 2 * 8, i / 4 * 8 + i % 2);
}

/// Sets the scores of keys that the mask's expression hides to -inf.
__device__ __forceinline__ void hide_scores(float (&scores)[block_n / 2], const Sequence& sequence,
                                            const Scope& scope, int row, int key) {
  const Positions at = positions_of(sequence, row, key + thread_index() % 4 * 2);
#pragma unroll
  for (int i = 0; i < block_n / 2; ++i)
    if (!is_visible(scope, at, i / 2 % 2 * 8, i / 4 * 8 + i % 2)) scores[i] = minus_infinity;
}
