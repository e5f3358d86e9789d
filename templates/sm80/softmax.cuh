// Online softmax: a running maximum and sum per row, the output rescaled when the maximum moves.

/// Per fragment of 16 rows, each thread keeps rows lane / 4 and lane / 4 + 8. `sum` is this thread's share of
/// the row's sum.
struct SoftmaxState {
  float maximum[m_fragments][2];
  float sum[m_fragments][2];
  bool subtract_first;  // the same in all lanes: some row's maximum is too large for one fused multiply-add
};

__device__ __forceinline__ void start_softmax(SoftmaxState& state) {
  state.subtract_first = false;
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state.maximum[m][half] = minus_infinity;
      state.sum[m][half] = 0.0f;
    }
}

/// The running maximum follows the true one only when it has fallen more than 8 (in powers of two) behind:
/// until then probabilities stay below 2^8, the final division undoes the common factor exactly, and the
/// output need not be rescaled.
constexpr float maximum_lag = 8.0f;

/// Beyond this the rounding of scale * maximum would show (2^-14 in the exponent), and the maximum is taken
/// off first.
constexpr float largest_fused_offset = 1024.0f;

/// Scores become probabilities relative to the running maximum: 2^(scale_log2 * (score - maximum)).
__device__ __forceinline__ void update_softmax(float (&scores)[m_fragments][n_fragments][4],
                                               SoftmaxState& state,
                                               float (&output)[m_fragments][columns_v / 8][4],
                                               float scale_log2) {
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
    bool large = false;
#pragma unroll
    for (int m = 0; m < m_fragments; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float old = state.maximum[m][half];
        const float now = maximum(old, row_maximum[m][half]);
        // A row that has seen no key yet has nothing to rescale, and -inf - -inf must not arise.
        const float correction = old == minus_infinity ? 0.0f : exp2_approximate((old - now) * scale_log2);
        state.maximum[m][half] = now;
        state.sum[m][half] *= correction;
        large |= now * scale_log2 > largest_fused_offset ||
                 (now * scale_log2 < -largest_fused_offset && now != minus_infinity);
#pragma unroll
        for (int n = 0; n < columns_v / 8; ++n) {
          output[m][n][half * 2] *= correction;
          output[m][n][half * 2 + 1] *= correction;
        }
      }
    state.subtract_first = warp_any(large);
  }
  float offset[m_fragments][2];
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float reference = state.maximum[m][half] == minus_infinity ? 0.0f : state.maximum[m][half];
      offset[m][half] = -reference * scale_log2;
    }
  if (state.subtract_first) {
#pragma unroll
    for (int m = 0; m < m_fragments; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float reference = state.maximum[m][half] == minus_infinity ? 0.0f : state.maximum[m][half];
        offset[m][half] = 0.0f;
#pragma unroll
        for (int n = 0; n < n_fragments; ++n) {
          scores[m][n][half * 2] -= reference;
          scores[m][n][half * 2 + 1] -= reference;
        }
      }
  }
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < n_fragments; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float probability =
              exp2_approximate(scores[m][n][half * 2 + e] * scale_log2 + offset[m][half]);
          scores[m][n][half * 2 + e] = probability;
          sum += probability;
        }
      state.sum[m][half] += sum;
    }
}
