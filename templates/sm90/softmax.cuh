// Online softmax over a warpgroup's accumulator: thread t of the group holds, of rows t / 4 % 8 + 16 * (t / 32) and 8 below,
// two neighbouring columns of every eight: element 4 i + 2 half + e is column 8 i + 2 (t % 4) + e of row half.

struct SoftmaxState {
  float maximum[2];
  float offset[2];  // see score_scale
  float sum[2];     // this thread's share
};

__device__ __forceinline__ void mask_scores(float (&scores)[block_n / 2], const ForwardParameters& p, int row, int key) {
  const int column = thread_index() % 4 * 2;
  const KeyLimits limits = key_limits(p, row, key + column);
  const int keys_left = p.seqlen_kv - key - column;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int high = limited_right ? minimum(limits.high + half * 8, keys_left) : keys_left;
#pragma unroll
    for (int i = 0; i < block_n / 8; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (i * 8 + e >= high || (limited_left && i * 8 + e < limits.low + half * 8)) scores[4 * i + 2 * half + e] = minus_infinity;
  }
}

/// score = cap * tanh(scale * score / cap), by tanh(x) = 1 - 2 / (exp(2x) + 1): absolute error near 2^-22, which
/// tanh.approx (2^-11) does not reach.
__device__ __forceinline__ void cap_scores(float (&scores)[block_n / 2], float scale) {
  const float factor = 2.0f * log2_e / softcap * scale;
#pragma unroll
  for (int i = 0; i < block_n / 2; ++i) {
    const float power = exp2_approximate(scores[i] * factor);
    scores[i] = softcap - 2.0f * softcap * reciprocal_approximate(power + 1.0f);
  }
}

constexpr bool lazy_rescale = false;

/// Two independent chains for maxima and sums: one has too little to issue between its dependent steps.
constexpr int chains = 2;

/// Scores become probabilities 2^(factor * score + offset), one fused multiply-add each; `correction` is the factor for the
/// old output. `checked`: a row may have seen no key so far.
template <bool checked, bool first>
__device__ __forceinline__ void update_softmax(float (&scores)[block_n / 2], SoftmaxState& state, float (&correction)[2],
                                               float scale_log2) {
  float partial[2][chains];
#pragma unroll
  for (int i = 0; i < block_n / 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float score = scores[4 * (i / 2) + 2 * half + i % 2];
      partial[half][i % chains] = i < chains ? score : maximum(partial[half][i % chains], score);
    }
  float factor[2], offset[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = maximum(partial[half][0], partial[half][1]);
    largest = maximum(largest, shuffle_xor(largest, 1));
    largest = maximum(largest, shuffle_xor(largest, 2));
    if (!first) largest = maximum(largest, state.maximum[half]);
    if (lazy_rescale && !first) largest = (largest - state.maximum[half]) * scale_log2 > 8.0f ? largest : state.maximum[half];
    const ScoreScale scale = score_scale(largest, scale_log2);
    factor[half] = scale.factor;
    offset[half] = checked && largest == minus_infinity ? 0.0f : scale.offset;  // inf - inf must not arise
    correction[half] = first ? 1.0f : exp2_approximate(offset[half] - state.offset[half]);
    state.sum[half] = first ? 0.0f : state.sum[half] * correction[half];
    state.maximum[half] = largest;
    state.offset[half] = scale.offset;
  }
#pragma unroll
  for (int i = 0; i < block_n / 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& score = scores[4 * (i / 2) + 2 * half + i % 2];
      score = exp2_approximate(score * factor[half] + offset[half]);
      partial[half][i % chains] = i < chains ? score : partial[half][i % chains] + score;
    }
#pragma unroll
  for (int half = 0; half < 2; ++half) state.sum[half] += partial[half][0] + partial[half][1];
}

/// The accumulator's layout is that of the A operand of the next product.
__device__ __forceinline__ void pack_probabilities(u32 (&packed)[block_n / 4], float (&scores)[block_n / 2]) {
#pragma unroll
  for (int i = 0; i < block_n / 4; ++i) packed[i] = pack_element(scores[2 * i], scores[2 * i + 1]);
}

__device__ __forceinline__ void rescale(float (&output)[head_dim_v / 2], float (&correction)[2]) {
#pragma unroll
  for (int i = 0; i < head_dim_v / 2; ++i) output[i] *= correction[i / 2 % 2];
}
