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

/// The same where the mask's comparisons give each row its limits; beyond the last key too.
__device__ __forceinline__ void hide_scores_beyond(float (&scores)[block_n / 2], const Sequence& sequence,
                                                   const Scope& scope, int row, int key) {
  const Positions at = positions_of(sequence, row, key + thread_index() % 4 * 2);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const KeyLimits limits = row_limits(scope, at.q + half * 8, at.kv);
    const int high = minimum(limits.high, sequence.keys - at.kv);
#pragma unroll
    for (int i = 0; i < block_n / 8; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (i * 8 + e >= high || i * 8 + e < limits.low) scores[4 * i + 2 * half + e] = minus_infinity;
  }
}
