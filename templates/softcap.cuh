// The soft cap.

/// score = cap * tanh(scale * product / cap), by tanh(x) = 1 - 2 / (exp(2x) + 1): absolute error near 2^-22,
/// which tanh.approx (2^-11) does not reach.
__device__ __forceinline__ float capped_score(float product, float scale) {
  const float power = exp2_approximate(product * (2.0f * log2_e / softcap * scale));
  return softcap - 2.0f * softcap * reciprocal_approximate(power + 1.0f);
}
