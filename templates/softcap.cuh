// The soft cap.

/// score = cap * tanh(scale * product / cap), by tanh(x) = 1 - 2 / (exp(2x) + 1): absolute error near 2^-22,
/// which tanh.approx (2^-11) does not reach.
__device__ __forceinline__ float capped_score(float product, float scale) {
  const float power = exp2_approximate(product * (2.0f * log2_e / softcap * scale));
  return softcap - 2.0f * softcap * reciprocal_approximate(power + 1.0f);
}

/// What the soft cap's derivative leaves of a gradient: 1 - tanh^2; 0 where the mask is.
__device__ __forceinline__ float cap_slope(float capped) {
  const float tanh = capped * (1.0f / softcap);
  return tanh * tanh < 1.0f ? 1.0f - tanh * tanh : 0.0f;
}
