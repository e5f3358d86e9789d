// The soft cap of the backward kernel, and what it leaves of gradients.

/// score = cap * tanh(scale * score / cap), as the forward kernel computes it; `slope` is what dS takes from
/// it, 1 - tanh^2.
__device__ __forceinline__ void change_scores(float (&scores)[score_rows][2 * score_fragments][4],
                                              float (&slope)[score_rows][2 * score_fragments][4], float scale,
                                              const Sequence&, const Scope&, int, int) {
  const float factor = 2.0f * log2_e / softcap * scale;
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float rest = reciprocal_approximate(exp2_approximate(scores[m][n][e] * factor) + 1.0f);
        scores[m][n][e] = softcap - 2.0f * softcap * rest;
        slope[m][n][e] = 4.0f * rest * (1.0f - rest);
      }
}

/// dS of capped scores.
__device__ __forceinline__ void apply_slope(float (&gradients)[score_rows][2 * score_fragments][4],
                                            const float (&slope)[score_rows][2 * score_fragments][4]) {
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) gradients[m][n][e] *= slope[m][n][e];
}
