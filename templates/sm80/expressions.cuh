// The spec's softcap or expressions, on a tile of scores. `row` is the warp's first query row, `key` the
// tile's first key.

/// What the spec makes of each product: softcap or expression.
__device__ __forceinline__ void change_scores(float (&scores)[m_fragments][n_fragments][4], float scale,
                                              const Sequence& sequence, const Scope& scope, int row,
                                              int key) {
  const int lane = thread_index() % 32;
  const Positions at = positions_of(sequence, row + lane / 4, key + lane % 4 * 2);
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int n = 0; n < n_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[m][n][e] = changed_score(scope, scores[m][n][e], scale, at, m * 16 + e / 2 * 8, n * 8 + e % 2);
}

/// Sets the scores of keys that the mask's expression hides to -inf.
__device__ __forceinline__ void hide_scores(float (&scores)[m_fragments][n_fragments][4],
                                            const Sequence& sequence, const Scope& scope, int row, int key) {
  const int lane = thread_index() % 32;
  const Positions at = positions_of(sequence, row + lane / 4, key + lane % 4 * 2);
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int n = 0; n < n_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (!is_visible(scope, at, m * 16 + e / 2 * 8, n * 8 + e % 2)) scores[m][n][e] = minus_infinity;
}

/// The same where the mask's comparisons give each row its limits; beyond the last key too.
__device__ __forceinline__ void hide_scores_beyond(float (&scores)[m_fragments][n_fragments][4],
                                                   const Sequence& sequence, const Scope& scope, int row,
                                                   int key) {
  const int lane = thread_index() % 32;
  const Positions at = positions_of(sequence, row + lane / 4, key + lane % 4 * 2);
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const KeyLimits limits = row_limits(scope, at.q + m * 16 + half * 8, at.kv);
      const int high = minimum(limits.high, sequence.keys - at.kv);
#pragma unroll
      for (int n = 0; n < n_fragments; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (n * 8 + e >= high || n * 8 + e < limits.low) scores[m][n][half * 2 + e] = minus_infinity;
    }
}
