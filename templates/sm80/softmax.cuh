// Online softmax: a running maximum and sum per row, the output rescaled when the maximum moves.

/// Per fragment of 16 rows, each thread keeps rows lane / 4 and lane / 4 + 8. `sum` is this thread's share of the row's sum.
struct SoftmaxState {
  float maximum[m_fragments][2];
  float sum[m_fragments][2];
};

__device__ __forceinline__ void start_softmax(SoftmaxState& state) {
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state.maximum[m][half] = minus_infinity;
      state.sum[m][half] = 0.0f;
    }
}

/// The running maximum follows the true one only when it has fallen more than 8 (in powers of two) behind: until then
/// probabilities stay below 2^8, the final division undoes the common factor exactly, and the output need not be rescaled.
constexpr float maximum_lag = 8.0f;

/// Scores become probabilities relative to the running maximum: 2^(factor * score + offset).
__device__ __forceinline__ void update_softmax(float (&scores)[m_fragments][n_fragments][4], SoftmaxState& state,
                                               float (&output)[m_fragments][columns_v / 8][4], float scale_log2) {
  float row_maximum[m_fragments][2];
  bool lags = false;
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = maximum(scores[m][0][half * 2], scores[m][0][half * 2 + 1]);
#pragma unroll
      for (int n = 1; n < n_fragments; ++n)
        largest = maximum(largest, maximum(scores[m][n][half * 2], scores[m][n][half * 2 + 1]));
      largest = maximum(largest, shuffle_xor(largest, 1));
      row_maximum[m][half] = maximum(largest, shuffle_xor(largest, 2));
      lags |= (row_maximum[m][half] - state.maximum[m][half]) * scale_log2 > maximum_lag;
    }
  if (warp_any(lags)) {
#pragma unroll
    for (int m = 0; m < m_fragments; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float old = state.maximum[m][half];
        state.maximum[m][half] = maximum(old, row_maximum[m][half]);
        // Nothing to rescale for a row that had seen no key: its offset was +inf.
        const float correction = old == minus_infinity ? 0.0f
                                                       : exp2_approximate(score_scale(state.maximum[m][half], scale_log2).offset -
                                                                          score_scale(old, scale_log2).offset);
        state.sum[m][half] *= correction;
#pragma unroll
        for (int n = 0; n < columns_v / 8; ++n) {
          output[m][n][half * 2] *= correction;
          output[m][n][half * 2 + 1] *= correction;
        }
      }
  }
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      ScoreScale scale = score_scale(state.maximum[m][half], scale_log2);
      if (state.maximum[m][half] == minus_infinity) scale.offset = 0.0f;  // -inf + inf must not arise
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < n_fragments; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float probability = exp2_approximate(scores[m][n][half * 2 + e] * scale.factor + scale.offset);
          scores[m][n][half * 2 + e] = probability;
          sum += probability;
        }
      state.sum[m][half] += sum;
    }
}
