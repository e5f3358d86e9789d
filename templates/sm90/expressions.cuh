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

/// Hides from 64 columns on. The expression stands in a loop that gathers bits: inlined for each element it
/// would be most of the kernel, and its look-ups, all begun at once, would take more registers than there
/// are.
template <int first>
__device__ __forceinline__ void hide_columns(float (&scores)[block_n / 2], const Scope& scope,
                                             const Positions& at) {
  constexpr int columns = minimum(64, block_n - first);
  u32 hidden = 0;
#pragma unroll 2
  for (int column = columns - 8; column >= 0; column -= 8)
#pragma unroll
    for (int i = 3; i >= 0; --i)
      hidden = hidden * 2 + !is_visible(scope, at, i / 2 * 8, first + column + i % 2);
#pragma unroll
  for (int i = 0; i < columns / 2; ++i)
    if (hidden >> i & 1) scores[first / 2 + i] = minus_infinity;
  if constexpr (first + 64 < block_n) hide_columns<first + 64>(scores, scope, at);
}

/// Sets the scores of keys that the mask's expression hides to -inf.
__device__ __forceinline__ void hide_scores(float (&scores)[block_n / 2], const Sequence& sequence,
                                            const Scope& scope, int row, int key) {
  hide_columns<0>(scores, scope, positions_of(sequence, row, key + thread_index() % 4 * 2));
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
