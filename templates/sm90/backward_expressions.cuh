// From products to probabilities by the spec's expressions.

/// Scores without a derivative of their own.
__device__ __forceinline__ void change_transposed(float (&scores)[score_rows / 2], float scale,
                                                  const Scope& scope, const Positions& at) {
#pragma unroll
  for (int i = 0; i < score_rows / 2; ++i)
    scores[i] = changed_score(scope, scores[i], scale, at, i / 4 * 8 + i % 2, i / 2 % 2 * 8);
}

/// What the mask's expression hides becomes -inf.
__device__ __forceinline__ void hide_transposed(float (&scores)[score_rows / 2], const Scope& scope,
                                                const Positions& at) {
#pragma unroll
  for (int i = 0; i < score_rows / 2; ++i)
    if (!is_visible(scope, at, i / 4 * 8 + i % 2, i / 2 % 2 * 8)) scores[i] = minus_infinity;
}

/// All in one, for scores whose derivative is none of 1: probabilities are packed here, and what stays
/// carries the derivative. Where a probability is 0 that is 0 too.
__device__ __forceinline__ void differentiate_scores(float (&scores)[score_rows / 2],
                                                     u32 (&probabilities)[score_rows / 4], u32 lse,
                                                     float scale, const Scope& scope, const Positions& at,
                                                     const HiddenRows& hidden, bool masked) {
#pragma unroll
  for (int i = 0; i < score_rows / 8; ++i) {
    float shift[2], slope[4];
    shared_load_pair(shift, lse + i * 32);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float& score = scores[4 * i + j];
      const int row = i * 8 + j % 2, key = j / 2 * 8;
      score = differentiated_score(scope, score, scale, at, row, key, slope[j]);
      if (masked && hidden.hides(row, j / 2)) score = minus_infinity;
      if (masked_by_function) {
        if (masked && !is_visible(scope, at, row, key)) score = minus_infinity;
      }
      score = exp2_approximate(score * log2_e - shift[j % 2]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      probabilities[2 * i + half] = pack_element(scores[4 * i + 2 * half], scores[4 * i + 2 * half + 1]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float& score = scores[4 * i + j];
      if (score != 0.0f) score *= slope[j];
    }
  }
}

/// `head` counts over all batches; `row` is the block's first for this consumer's scores, `key` this thread's
/// first; `lse` as for compute_probabilities.
__device__ __forceinline__ void find_probabilities(const HopperBackwardParameters& p,
                                                   const BackwardConsumer& me,
                                                   float (&scores)[score_rows / 2],
                                                   u32 (&probabilities)[score_rows / 4], int head,
                                                   bool masked, int row, int key, u32 lse) {
  const Sequence sequence = sequence_of(p.backward);
  const int heads = p.backward.forward.heads, batch = head / heads;
  const Scope scope = scope_of(sequence, *me.expressions, batch, head - batch * heads);
  const float scale = p.backward.forward.scale;
  // Keys lie along the thread's rows of the accumulator: an expression's column is a key, its row a query.
  const Positions at = positions_of(sequence, row + thread_index() % 4 * 2, key);
  if (differentiates_scores) {
    differentiate_scores(scores, probabilities, lse, scale, scope, at, hidden_rows(sequence, row, key),
                         masked);
    return;
  }
  if (changes_scores_plainly) change_transposed(scores, scale, scope, at);
  if (masked) {
    mask_transposed(scores, sequence, row, key);
    if (masked_by_function) hide_transposed(scores, scope, at);
  }
  compute_probabilities(scores, probabilities, lse, me.scale_log2);
}

/// dS, as it is before the derivative of scores, is the gradient of the bias. Where scores carry that
/// derivative, probabilities are those that were packed.
__device__ __forceinline__ void add_bias_gradients(const HopperBackwardParameters& p,
                                                   const BackwardConsumer& me,
                                                   const float (&scores)[score_rows / 2],
                                                   const u32 (&probabilities)[score_rows / 4],
                                                   const float (&dp)[score_rows / 2], int head, int row,
                                                   int key, u32 row_term) {
  const int heads = p.backward.forward.heads, batch = head / heads;
  const Scope scope = scope_of(sequence_of(p.backward), *me.expressions, batch, head - batch * heads);
  const BiasGradients to = bias_gradients(scope, row + thread_index() % 4 * 2, key);
#pragma unroll
  for (int i = 0; i < score_rows / 8; ++i) {
    float term[2];
    shared_load_pair(term, row_term + i * 32);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float probability = scores[4 * i + j];
      if (with_slope) {
        const u32 pair = probabilities[2 * i + j / 2];
        probability = j % 2 ? unpack_high(pair) : unpack_low(pair);
      }
      to.add(i * 8 + j % 2, j / 2 * 8, probability * (dp[4 * i + j] - term[j % 2]));
    }
  }
}
