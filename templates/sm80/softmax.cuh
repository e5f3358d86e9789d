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

/// Scores become probabilities relative to the running maximum: 2^(scale_log2 * (score - maximum)).
__device__ __forceinline__ void update_softmax(float (&scores)[m_fragments][n_fragments][4], SoftmaxState& state,
                                               float (&output)[m_fragments][columns_v / 8][4], float scale_log2) {
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float old_maximum = state.maximum[m][half];
      float row_maximum = old_maximum;
#pragma unroll
      for (int n = 0; n < n_fragments; ++n)
        row_maximum = maximum(row_maximum, maximum(scores[m][n][half * 2], scores[m][n][half * 2 + 1]));
      row_maximum = maximum(row_maximum, shuffle_xor(row_maximum, 1));
      row_maximum = maximum(row_maximum, shuffle_xor(row_maximum, 2));
      state.maximum[m][half] = row_maximum;
      // A row that has seen no key yet subtracts 0, so that -inf - -inf never arises.
      const float reference = row_maximum == minus_infinity ? 0.0f : row_maximum;
      const float correction = exp2_approximate((old_maximum - reference) * scale_log2);
      // One fused multiply-add per score; its rounding error grows with the maximum, so that beyond 2^10 (error 2^-14)
      // the maximum is taken off first, exactly.
      float offset = -reference * scale_log2;
      if (offset > 1024.0f || offset < -1024.0f) {
#pragma unroll
        for (int n = 0; n < n_fragments; ++n) {
          scores[m][n][half * 2] -= reference;
          scores[m][n][half * 2 + 1] -= reference;
        }
        offset = 0.0f;
      }
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < n_fragments; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float probability = exp2_approximate(scores[m][n][half * 2 + e] * scale_log2 + offset);
          scores[m][n][half * 2 + e] = probability;
          sum += probability;
        }
      state.sum[m][half] = state.sum[m][half] * correction + sum;
#pragma unroll
      for (int n = 0; n < columns_v / 8; ++n) {
        output[m][n][half * 2] *= correction;
        output[m][n][half * 2 + 1] *= correction;
      }
    }
}
