// The output of a tile: P times V, normalisation, stores straight from registers.

/// V as the B operand, transposed on the way: 16 keys by 16 columns at once.
__device__ __forceinline__ u32 value_address(u32 value_tile) {
  const int lane = thread_index() % 32, row = lane % 16;
  return value_tile + row * row_bytes(columns_v) + (lane / 16 ^ swizzle(columns_v, row)) * 16;
}

/// Fragment of keys [16 k, 16 k + 16), columns [16 n, 16 n + 16).
__device__ __forceinline__ void load_value_fragment(u32 (&fragment)[4], u32 value, int k, int n) {
  load_matrix_x4_transposed(fragment,
                            advance_chunks(value, columns_v, n * 2) + k * 16 * row_bytes(columns_v));
}

/// The accumulator layout of the scores is the A operand's layout of the next product.
__device__ __forceinline__ void accumulate_output(float (&output)[m_fragments][columns_v / 8][4],
                                                  float (&probabilities)[m_fragments][n_fragments][4],
                                                  u32 value) {
  constexpr int per_k = columns_v / 16, steps = block_n / 16 * per_k, slots = lookahead + 1;
  u32 a[m_fragments][4], b[slots][4];
#pragma unroll
  for (int i = 0; i < minimum(lookahead, steps); ++i)
    load_value_fragment(b[i % slots], value, i / per_k, i % per_k);
#pragma unroll
  for (int i = 0; i < steps; ++i) {
    const int k = i / per_k, n = i % per_k * 2, ahead = i + lookahead;
    if (n == 0) {
#pragma unroll
      for (int m = 0; m < m_fragments; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float(&pair)[4] = probabilities[m][2 * k + e / 2];
          a[m][e] = pack_element(pair[e % 2 * 2], pair[e % 2 * 2 + 1]);
        }
    }
    if (ahead < steps) load_value_fragment(b[ahead % slots], value, ahead / per_k, ahead % per_k);
    const u32(&values)[4] = b[i % slots];
#pragma unroll
    for (int m = 0; m < m_fragments; ++m) {
      matrix_multiply(output[m][n], a[m], values[0], values[1]);
      matrix_multiply(output[m][n + 1], a[m], values[2], values[3]);
    }
  }
}

/// `row` is the warp's first query row; `out` and `lse` point at the head's row 0.
__device__ __forceinline__ void store_output(const ForwardParameters& p,
                                             float (&output)[m_fragments][columns_v / 8][4],
                                             SoftmaxState& state, const Sequence& sequence, int head,
                                             u16* out, float* lse, int row) {
  const int lane = thread_index() % 32;
  float sink = minus_infinity, log_sum = 0.0f;
  if (with_sinks) sink = sink_of(p, head);
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = state.sum[m][half];
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      const bool sees_no_key = sum == 0.0f;
      float factor = sees_no_key ? 0.0f : reciprocal_approximate(sum);
      if (with_sinks) {
        const float scale_log2 = with_changed_scores ? log2_e : p.scale_log2;
        factor = join_sink(sink, state.maximum[m][half] * scale_log2, sum, log_sum);
      }
      if (with_dropout) factor *= p.dropout.factor;
      const int my_row = row + m * 16 + half * 8 + lane / 4;
      const bool live = my_row < sequence.queries;
      u16* to = out + my_row * p.out.row_stride + lane % 4 * 8;
      if (with_lse && live && lane % 4 == 0 && lse) {
        const float scale = with_changed_scores ? 1.0f : p.scale;
        float logarithm =
            sees_no_key ? minus_infinity : state.maximum[m][half] * scale + log2_approximate(sum) * ln_2;
        if (with_sinks) logarithm = log_sum;
        global_store_float(lse + my_row, logarithm);
      }
#pragma unroll
      for (int group = 0; group < (columns_v + 31) / 32; ++group) {
        u32 word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int n = group * 4 + i;
          word[i] = n < columns_v / 8
                        ? pack_element(output[m][n < columns_v / 8 ? n : 0][half * 2] * factor,
                                       output[m][n < columns_v / 8 ? n : 0][half * 2 + 1] * factor)
                        : 0u;
        }
        transpose_quad(word);
        if (live && (head_dim_v % 32 == 0 || group * 32 + lane % 4 * 8 < head_dim_v))
          global_store_16(to + group * 32, word[0], word[1], word[2], word[3]);
      }
    }
}
