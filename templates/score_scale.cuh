// From scores to exponents: 2^(factor * score + offset), one fused multiply-add a score, exact enough for any score.

/// With the usual factor, scale * log2(e), the offset -factor * maximum is rounded, and all probabilities of the row carry
/// the same factor 2^rounding, which the final division undoes: it does no harm until it overflows. At 2^27 it is at most
/// 2^4. From there on scores that differ at all differ by 8 or more in the exponent, and the nearest power of two serves as
/// the factor just as well; with it the offset is exact.
constexpr float largest_rounded_offset = 134217728.0f;

struct ScoreScale {
  float factor, offset;
};

/// `reference`: the row's maximum, 0 if it has seen no key.
__device__ __forceinline__ ScoreScale score_scale(float reference, float scale_log2) {
  const float offset = -reference * scale_log2;
  const bool huge = offset > largest_rounded_offset || offset < -largest_rounded_offset;
  const float factor = huge ? power_of_two_below(scale_log2) : scale_log2;
  return {factor, -reference * factor};
}

/// What earlier probabilities, relative to the maximum `old`, are multiplied with to be relative to `now`.
__device__ __forceinline__ float score_correction(float old, const ScoreScale& now, float scale_log2) {
  return old == minus_infinity ? 0.0f : exp2_approximate(now.offset - score_scale(old, scale_log2).offset);
}

/// Natural logarithm of the row's sum of exponentials. Capped scores are logits already.
__device__ __forceinline__ float log_sum_exp(const ForwardParameters& p, float row_maximum, float sum) {
  const float scale = with_softcap ? 1.0f : p.scale, scale_log2 = with_softcap ? log2_e : p.scale_log2;
  const ScoreScale used = score_scale(row_maximum, scale_log2);
  return used.factor == scale_log2 ? (log2_approximate(sum) - used.offset) * ln_2
                                   : row_maximum * scale + log2_approximate(sum) * ln_2;
}
