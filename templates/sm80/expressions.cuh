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

/// Hides in 64 columns of 16 rows, then in the next. The expression stands in a loop that gathers bits:
/// inlined for each element it would be most of the kernel, and its look-ups, all begun at once, would take
/// more registers than there are.
template <int m, int first>
__device__ __forceinline__ void hide_columns(float (&scores)[m_fragments][n_fragments][4], const Scope& scope,
                                             const Positions& at) {
  constexpr int fragments = minimum(8, n_fragments - first);
  u32 hidden = 0;
#pragma unroll 2
  for (int n = fragments - 1; n >= 0; --n)
#pragma unroll
    for (int e = 3; e >= 0; --e)
      hidden = hidden * 2 + !is_visible(scope, at, m * 16 + e / 2 * 8, (first + n) * 8 + e % 2);
#pragma unroll
  for (int i = 0; i < fragments * 4; ++i)
    if (hidden >> i & 1) scores[m][first + i / 4][i % 4] = minus_infinity;
  if constexpr (first + 8 < n_fragments)
    hide_columns<m, first + 8>(scores, scope, at);
  else if constexpr (m + 1 < m_fragments)
    hide_columns<m + 1, 0>(scores, scope, at);
}

/// Sets the scores of keys that the mask's expression hides to -inf.
__device__ __forceinline__ void hide_scores(float (&scores)[m_fragments][n_fragments][4],
                                            const Sequence& sequence, const Scope& scope, int row, int key) {
  const int lane = thread_index() % 32;
  hide_columns<0, 0>(scores, scope, positions_of(sequence, row + lane / 4, key + lane % 4 * 2));
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
