// From scores to exponents: 2^(factor * score + offset), one fused multiply-add a score, exact enough for any score.

/// With the usual factor, scale * log2(e), the offset -factor * maximum is rounded, and all probabilities of the row carry
/// the same factor 2^rounding, which the final division undoes: it does no harm until it overflows. At 2^27 it is at most
/// 2^4. From there on scores that differ at all differ by 8 or more in the exponent, and the nearest power of two serves as
/// the factor just as well; with it the offset is exact.
constexpr float largest_rounded_offset = 134217728.0f;

/// `offset` is +inf for a row that has seen no key.
struct ScoreScale {
  float factor, offset;
};

__device__ __forceinline__ ScoreScale score_scale(float row_maximum, float scale_log2) {
  const float power = power_of_two_below(scale_log2);
  const float offset = -row_maximum * scale_log2, exact_offset = -row_maximum * power;
  const bool huge = absolute(offset) > largest_rounded_offset;
  return {huge ? power : scale_log2, huge ? exact_offset : offset};
}

/// Natural logarithm of the row's sum of exponentials. Capped scores are logits already.
__device__ __forceinline__ float log_sum_exp(const ForwardParameters& p, float row_maximum, float sum) {
  const float scale = with_softcap ? 1.0f : p.scale, scale_log2 = with_softcap ? log2_e : p.scale_log2;
  const ScoreScale used = score_scale(row_maximum, scale_log2);
  return used.factor == scale_log2 ? (log2_approximate(sum) - used.offset) * ln_2
                                   : row_maximum * scale + log2_approximate(sum) * ln_2;
}
