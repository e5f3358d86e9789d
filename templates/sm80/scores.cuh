// Scores of a tile: Q times K transposed, soft cap, mask.

constexpr int m_fragments = block_m / warps / 16;

constexpr int n_fragments = block_n / 8;

constexpr int query_fragments = query_in_registers ? columns_qk / 16 : 1;

/// Steps between reading an operand fragment and the product that takes it. 1 to 4 run equally fast on the
/// H200 (ptxas moves the reads about itself); with 3 no shipped spec spills on any target, with 1 and 2 some
/// do.
constexpr int lookahead = 3;

/// Q as the A operand: lane i holds the address of row i % 16, chunk i / 16.
__device__ __forceinline__ u32 query_address(u32 query_tile) {
  const int lane = thread_index() % 32, warp = thread_index() / 32, row = lane % 16;
  return query_tile + (warp * m_fragments * 16 + row) * row_bytes(columns_qk) +
         (lane / 16 ^ swizzle(columns_qk, row)) * 16;
}

__device__ __forceinline__ void load_query_fragment(u32 (&fragment)[m_fragments][4], u32 query, int k) {
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
    load_matrix_x4(fragment[m], advance_chunks(query, columns_qk, k * 2) + m * 16 * row_bytes(columns_qk));
}

/// K as the B operand: two fragments of 8 keys at once.
__device__ __forceinline__ u32 key_address(u32 key_tile) {
  const int lane = thread_index() % 32, row = lane % 8 + lane / 16 * 8;
  return key_tile + row * row_bytes(columns_qk) + (lane / 8 % 2 ^ swizzle(columns_qk, row)) * 16;
}

/// Fragment of keys [16 n, 16 n + 16), columns [16 k, 16 k + 16).
__device__ __forceinline__ void load_key_fragment(u32 (&fragment)[4], u32 key, int n, int k) {
  load_matrix_x4(fragment, advance_chunks(key, columns_qk, k * 2) + n * 16 * row_bytes(columns_qk));
}

/// Products of one step of 16 columns with 16 keys; the first step of a sum overwrites the scores.
__device__ __forceinline__ void multiply_keys(float (&scores)[m_fragments][n_fragments][4],
                                              const u32 (*queries)[4], const u32 (&keys)[4], int k, int n) {
#pragma unroll
  for (int m = 0; m < m_fragments; ++m) {
    const u32 a[4] = {queries[m][0], queries[m][1], queries[m][2], queries[m][3]};
    if (k == 0) {
      matrix_multiply_first(scores[m][n], a, keys[0], keys[1]);
      matrix_multiply_first(scores[m][n + 1], a, keys[2], keys[3]);
    } else {
      matrix_multiply(scores[m][n], a, keys[0], keys[1]);
      matrix_multiply(scores[m][n + 1], a, keys[2], keys[3]);
    }
  }
}

/// `held` is Q in registers; otherwise Q is read from shared memory again. Operand fragments are read
/// `lookahead` steps before the product that takes them.
__device__ __forceinline__ void compute_scores(float (&scores)[m_fragments][n_fragments][4],
                                               const u32 (&held)[query_fragments][m_fragments][4], u32 query,
                                               u32 key) {
  constexpr int per_k = n_fragments / 2, steps = columns_qk / 16 * per_k, slots = lookahead + 1;
  u32 a[2][m_fragments][4], b[slots][4];
  if (!query_in_registers) load_query_fragment(a[0], query, 0);
#pragma unroll
  for (int i = 0; i < minimum(lookahead, steps); ++i)
    load_key_fragment(b[i % slots], key, i % per_k, i / per_k);
#pragma unroll
  for (int i = 0; i < steps; ++i) {
    const int k = i / per_k, n = i % per_k * 2, ahead = i + lookahead;
    if (!query_in_registers && n == 0 && k + 1 < columns_qk / 16)
      load_query_fragment(a[(k + 1) % 2], query, k + 1);
    if (ahead < steps) load_key_fragment(b[ahead % slots], key, ahead % per_k, ahead / per_k);
    multiply_keys(scores, query_in_registers ? held[query_in_registers ? k : 0] : a[k % 2], b[i % slots], k,
                  n);
  }
}

/// Sets the scores of keys that a row does not see to -inf. `row` is the warp's first query row, `key` the
/// tile's first key.
__device__ __forceinline__ void mask_scores(float (&scores)[m_fragments][n_fragments][4],
                                            const Sequence& sequence, int row, int key) {
  const int lane = thread_index() % 32, column = lane % 4 * 2;
  const KeyLimits limits = key_limits(sequence, row + lane / 4, key + column);
  const int keys_left = sequence.keys - key - column;
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int further = m * 16 + half * 8;
      const int high = limited_right ? minimum(limits.high + further, keys_left) : keys_left;
#pragma unroll
      for (int n = 0; n < n_fragments; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (n * 8 + e >= high || (limited_left && n * 8 + e < limits.low + further))
            scores[m][n][half * 2 + e] = minus_infinity;
    }
}
