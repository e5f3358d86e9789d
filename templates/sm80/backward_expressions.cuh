// The spec's softcap and expressions on the backward kernel's scores, and what their derivative leaves of
// gradients. `row` is the warp's first query row, `key` its first key.

/// What the spec makes of each product; `slope` is the derivative by the scaled product.
__device__ __forceinline__ void change_scores(float (&scores)[score_rows][2 * score_fragments][4],
                                              float (&slope)[score_rows][2 * score_fragments][4], float scale,
                                              const Sequence& sequence, const Scope& scope, int row,
                                              int key) {
  const int lane = thread_index() % 32;
  const Positions at = positions_of(sequence, row + lane / 4, key + lane % 4 * 2);
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[m][n][e] = differentiated_score(scope, scores[m][n][e], scale, at, m * 16 + e / 2 * 8,
                                               n * 8 + e % 2, slope[m][n][e]);
}

/// Sets the scores of keys that the mask's expression hides to -inf.
__device__ __forceinline__ void hide_scores(float (&scores)[score_rows][2 * score_fragments][4],
                                            const Sequence& sequence, const Scope& scope, int row, int key) {
  const int lane = thread_index() % 32;
  const Positions at = positions_of(sequence, row + lane / 4, key + lane % 4 * 2);
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (!is_visible(scope, at, m * 16 + e / 2 * 8, n * 8 + e % 2)) scores[m][n][e] = minus_infinity;
}

/// dS by the scaled products. A gradient of 0 stays 0, whatever the derivative of a score that is not seen.
__device__ __forceinline__ void apply_slope(float (&gradients)[score_rows][2 * score_fragments][4],
                                            const float (&slope)[score_rows][2 * score_fragments][4]) {
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (gradients[m][n][e] != 0.0f) gradients[m][n][e] *= slope[m][n][e];
}

/// dS, as it is before the derivative of scores, is the gradient of the bias.
__device__ __forceinline__ void add_bias_gradients(
    const float (&gradients)[score_rows][2 * score_fragments][4], const Scope& scope, int row, int key) {
  const int lane = thread_index() % 32;
  const BiasGradients to = bias_gradients(scope, row + lane / 4, key + lane % 4 * 2);
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) to.add(m * 16 + e / 2 * 8, n * 8 + e % 2, gradients[m][n][e]);
}
