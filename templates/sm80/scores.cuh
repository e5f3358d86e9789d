// Scores of a tile: Q times K transposed, soft cap, mask.

constexpr int m_fragments = block_m / warps / 16;

constexpr int n_fragments = block_n / 8;

constexpr int query_fragments = query_in_registers ? columns_qk / 16 : 1;

/// Q as the A operand: lane i holds the address of row i % 16, columns 8 * (i / 16).
__device__ __forceinline__ u32 query_address(u32 query_tile) {
  const int lane = thread_index() % 32, warp = thread_index() / 32;
  return query_tile + (warp * m_fragments * 16 + lane % 16) * row_pitch(columns_qk) + lane / 16 * 16;
}

__device__ __forceinline__ void load_query_fragment(u32 (&fragment)[m_fragments][4], u32 query, int k) {
#pragma unroll
  for (int m = 0; m < m_fragments; ++m) load_matrix_x4(fragment[m], query + m * 16 * row_pitch(columns_qk) + k * 32);
}

/// K as the B operand: two fragments of 8 keys at once.
__device__ __forceinline__ u32 key_address(u32 key_tile) {
  const int lane = thread_index() % 32;
  return key_tile + (lane % 8 + lane / 16 * 8) * row_pitch(columns_qk) + lane / 8 % 2 * 16;
}

/// `held` is Q in registers; otherwise Q is read from shared memory again.
__device__ __forceinline__ void compute_scores(float (&scores)[m_fragments][n_fragments][4],
                                               const u32 (&held)[query_fragments][m_fragments][4], u32 query,
                                               u32 key) {
#pragma unroll
  for (int k = 0; k < columns_qk / 16; ++k) {
    u32 a[m_fragments][4];
    if (query_in_registers) {
#pragma unroll
      for (int m = 0; m < m_fragments; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) a[m][e] = held[query_in_registers ? k : 0][m][e];
    } else {
      load_query_fragment(a, query, k);
    }
#pragma unroll
    for (int n = 0; n < n_fragments; n += 2) {
      u32 b[4];
      load_matrix_x4(b, key + n * 8 * row_pitch(columns_qk) + k * 32);
#pragma unroll
      for (int m = 0; m < m_fragments; ++m) {
        if (k == 0) {
          matrix_multiply_first(scores[m][n], a[m], b[0], b[1]);
          matrix_multiply_first(scores[m][n + 1], a[m], b[2], b[3]);
        } else {
          matrix_multiply(scores[m][n], a[m], b[0], b[1]);
          matrix_multiply(scores[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }
}

/// score = cap * tanh(scale * score / cap), by tanh(x) = 1 - 2 / (exp(2x) + 1): absolute error near 2^-22, which
/// tanh.approx (2^-11) does not reach.
__device__ __forceinline__ void cap_scores(float (&scores)[m_fragments][n_fragments][4], float scale) {
  const float factor = 2.0f * log2_e / softcap * scale;
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int n = 0; n < n_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float power = exp2_approximate(scores[m][n][e] * factor);
        scores[m][n][e] = softcap - 2.0f * softcap * reciprocal_approximate(power + 1.0f);
      }
}

/// Sets the scores of keys that a row does not see to -inf. `row` is the warp's first query row, `key` the tile's first key.
__device__ __forceinline__ void mask_scores(float (&scores)[m_fragments][n_fragments][4], const ForwardParameters& p,
                                            int row, int key) {
  const int lane = thread_index() % 32;
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const KeyLimits limits = key_limits(p, row + m * 16 + half * 8 + lane / 4, key);
      const int low = limits.low - lane % 4 * 2, high = limits.high - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < n_fragments; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = n * 8 + e;
          if (column >= high || (limited_left && column < low)) scores[m][n][half * 2 + e] = minus_infinity;
        }
    }
}
