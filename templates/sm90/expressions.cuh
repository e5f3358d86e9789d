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

/// Hides in 32 columns, then in the next. The expression stands in a loop that gathers bits: inlined for each
/// element it would be most of the kernel. What it looks up by key each lane looks up for one, and hands
/// around.
template <int first>
__device__ __forceinline__ void hide_columns(float (&scores)[block_n / 2], const Scope& scope,
                                             const Positions& at) {
  constexpr int columns = minimum(32, block_n - first);
  const int lane = thread_index() % 32, own = lane % 4 * 2;
  const KeyValues values = key_values_at(scope, at.kv - own + first + lane);
  u32 hidden = 0;
#pragma unroll 2
  for (int column = columns - 8; column >= 0; column -= 8) {
    const KeyValues left = key_values_of(values, column + own),
                    right = key_values_of(values, column + own + 1);
    u32 bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      bits |= is_visible(scope, i % 2 ? right : left, at, i / 2 * 8, first + column + i % 2) ? 0u : 1u << i;
    hidden = hidden << 4 | bits;
  }
#pragma unroll
  for (int i = 0; i < columns / 2; ++i)
    if (hidden >> i & 1) scores[first / 2 + i] = minus_infinity;
  if constexpr (first + 32 < block_n) hide_columns<first + 32>(scores, scope, at);
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
