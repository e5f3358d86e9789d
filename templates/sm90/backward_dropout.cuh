// Dropout in the backward kernel: which of a consumer's probabilities were dropped.

/// A bit for each of a thread's elements, in the order of registers.
constexpr int dropped_words = (score_rows / 2 + 31) / 32;

/// `row` is the block's first of this consumer, `key` this thread's first, `head` counts those of all
/// batches.
__device__ __forceinline__ void find_dropped(u32 (&dropped)[dropped_words], const DropoutParameters& p,
                                             int head, int row, int key) {
#pragma unroll
  for (int i = 0; i < dropped_words; ++i) dropped[i] = 0;
#pragma unroll
  for (int i = 0; i < score_rows; i += 32) {
    u32 words[2][2];
    draw_fragments<true>(words, p, head, row + i, key, row + i + 16, key);
#pragma unroll
    for (int j = 0; j < 16; ++j)
      if (is_dropped(words[j / 8][j % 2], j / 4 % 2 * 2 + j / 2 % 2, p.threshold))
        dropped[(i / 2 + j) / 32] |= 1u << (i / 2 + j) % 32;
  }
}

/// dP of what was dropped is 0, of the rest it takes the factor.
__device__ __forceinline__ void drop_gradients(float (&dp)[score_rows / 2],
                                               const u32 (&dropped)[dropped_words], float factor) {
#pragma unroll
  for (int i = 0; i < score_rows / 2; ++i) dp[i] = dropped[i / 32] >> i % 32 & 1 ? 0.0f : dp[i] * factor;
}

/// P as dV sees it, up to the factor, which is dV's.
__device__ __forceinline__ void drop_packed(u32 (&probabilities)[score_rows / 4],
                                            const u32 (&dropped)[dropped_words]) {
#pragma unroll
  for (int i = 0; i < score_rows / 4; ++i) {
    const u32 pair = dropped[i / 16] >> i % 16 * 2;
    if (pair & 1) probabilities[i] &= 0xffff0000u;
    if (pair & 2) probabilities[i] &= 0x0000ffffu;
  }
}
