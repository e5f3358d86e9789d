// Probabilities and dS of 64 keys by a consumer's score_rows query rows, transposed: thread t of the group
// holds, of keys t / 4 % 8 + 16 * (t / 32) and 8 above, two neighbouring query rows of every eight: element
// 4 i + 2 half + e is row 8 i + 2 (t % 4) + e of key `half`.

/// Of the rows of a thread's two keys, those that do not see them, and all of a key past the last one.
struct HiddenRows {
  int low[2], end;
  __device__ __forceinline__ bool hides(int row, int half) const {
    return row < low[half] || (limited_left && row >= end + half * 8);
  }
};

/// `row` is the first of the scores, `key` this thread's first key.
__device__ __forceinline__ HiddenRows hidden_rows(const Sequence& sequence, int row, int key) {
  constexpr long long far = 1 << 30;
  const long long position = (long long)key - diagonal_shift(sequence) - row - thread_index() % 4 * 2;
  const int first = limited_right ? (int)clamp(position - window_right, -far, far) : (int)-far;
  HiddenRows hidden;
  hidden.end = limited_left ? (int)clamp(position + window_left + 1, -far, far) : (int)far;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    hidden.low[half] = key + half * 8 < sequence.keys ? first + half * 8 : (int)far;
  return hidden;
}

/// What lies outside of the mask, and keys past the last one, become -inf.
__device__ __forceinline__ void mask_transposed(float (&scores)[score_rows / 2], const Sequence& sequence,
                                                int row, int key) {
  const HiddenRows hidden = hidden_rows(sequence, row, key);
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int i = 0; i < score_rows / 8; ++i)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (hidden.hides(i * 8 + e, half)) scores[4 * i + 2 * half + e] = minus_infinity;
}

/// score = cap * tanh(scale * score / cap), as the forward kernel computes it.
__device__ __forceinline__ void cap_transposed(float (&scores)[score_rows / 2], float scale) {
  const float factor = 2.0f * log2_e / softcap * scale;
#pragma unroll
  for (int i = 0; i < score_rows / 2; ++i) {
    const float power = exp2_approximate(scores[i] * factor);
    scores[i] = softcap - 2.0f * softcap * reciprocal_approximate(power + 1.0f);
  }
}

/// Scores become probabilities; `lse` is the shared address of this thread's first row's LSE. With a soft cap
/// they are packed here, and what stays carries its slope.
__device__ __forceinline__ void compute_probabilities(float (&scores)[score_rows / 2],
                                                      u32 (&probabilities)[score_rows / 4], u32 lse,
                                                      float scale_log2) {
#pragma unroll
  for (int i = 0; i < score_rows / 8; ++i) {
    float shift[2], slope[4];
    shared_load_pair(shift, lse + i * 32);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float& score = scores[4 * i + j];
      if (with_softcap) slope[j] = cap_slope(score);
      score = exp2_approximate(score * scale_log2 - shift[j % 2]);
    }
    if (with_softcap) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        probabilities[2 * i + half] = pack_element(scores[4 * i + 2 * half], scores[4 * i + 2 * half + 1]);
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[4 * i + j] *= slope[j];
    }
  }
}

/// dS = P (dP - row term); the accumulator's layout is that of the A operand of the products to come.
__device__ __forceinline__ void compute_ds(u32 (&ds)[score_rows / 4], float (&scores)[score_rows / 2],
                                           float (&dp)[score_rows / 2], u32 row_term) {
#pragma unroll
  for (int i = 0; i < score_rows / 8; ++i) {
    float term[2];
    shared_load_pair(term, row_term + i * 32);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = 4 * i + 2 * half;
      ds[2 * i + half] =
          pack_element(scores[at] * (dp[at] - term[0]), scores[at + 1] * (dp[at + 1] - term[1]));
    }
  }
}

__device__ __forceinline__ void pack_transposed(u32 (&probabilities)[score_rows / 4],
                                                float (&scores)[score_rows / 2]) {
  if (!with_slope) {
#pragma unroll
    for (int i = 0; i < score_rows / 4; ++i)
      probabilities[i] = pack_element(scores[2 * i], scores[2 * i + 1]);
  }
}

/// Turned to rows of 64 keys, swizzled as the copy engine would; `to` is this lane's first row.
__device__ __forceinline__ void store_ds(u32 to, u32 (&ds)[score_rows / 4]) {
#pragma unroll
  for (int i = 0; i < score_rows / 16; ++i)
    store_matrix_x4_transposed(to + i * 2048, ds[4 * i], ds[4 * i + 1], ds[4 * i + 2], ds[4 * i + 3]);
  fence_async_shared();
  warp_barrier();
}

/// P and dS as rows of keys, half of each row from each consumer: the first operand of the products to come.
__device__ __forceinline__ void store_columns(u32 to, u32 (&probabilities)[score_rows / 4],
                                              u32 (&ds)[score_rows / 4]) {
#pragma unroll
  for (int i = 0; i < score_rows / 16; ++i) {
    // Rows of the block begin 32 bytes later for every 16 of them: bits 5 and up of a swizzled address.
    const u32 at = to ^ i * 32;
    store_matrix_x4(at, probabilities[4 * i], probabilities[4 * i + 1], probabilities[4 * i + 2],
                    probabilities[4 * i + 3]);
    store_matrix_x4(at + row_panel_bytes, ds[4 * i], ds[4 * i + 1], ds[4 * i + 2], ds[4 * i + 3]);
  }
  fence_async_shared();
  warp_barrier();
}
