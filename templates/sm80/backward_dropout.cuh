// Dropout in the backward kernel: which of a warp's probabilities were dropped.

/// A bit for each of a thread's elements, in the order of registers.
constexpr int dropped_words = (score_rows * score_fragments * 8 + 31) / 32;

/// `row` and `key` are the warp's first ones, `head` counts those of all batches.
__device__ __forceinline__ void find_dropped(u32 (&dropped)[dropped_words], const DropoutParameters& p,
                                             int head, int row, int key) {
  constexpr int fragments = score_rows * score_fragments;
#pragma unroll
  for (int i = 0; i < dropped_words; ++i) dropped[i] = 0;
#pragma unroll
  for (int i = 0; i < fragments; i += 2) {
    const int next = minimum(i + 1, fragments - 1);
    u32 words[2][2];
    draw_fragments<false>(words, p, head, row + i / score_fragments * 16, key + i % score_fragments * 16,
                          row + next / score_fragments * 16, key + next % score_fragments * 16);
#pragma unroll
    for (int j = 0; j < 16; ++j)
      if (i + j / 8 < fragments && is_dropped(words[j / 8][j % 2], j / 2 % 2 * 2 + j / 4 % 2, p.threshold))
        dropped[(i * 8 + j) / 32] |= 1u << (i * 8 + j) % 32;
  }
}

/// Zero for what was dropped, `factor` for the rest.
__device__ __forceinline__ void drop(float (&values)[score_rows][2 * score_fragments][4],
                                     const u32 (&dropped)[dropped_words], float factor) {
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int bit = (m * 2 * score_fragments + n) * 4 + e;
        values[m][n][e] = dropped[bit / 32] >> bit % 32 & 1 ? 0.0f : values[m][n][e] * factor;
      }
}

/// Writes P as dV sees it, up to the factor, which is dV's.
__device__ __forceinline__ void store_kept(const float (&scores)[score_rows][2 * score_fragments][4],
                                           const u32 (&dropped)[dropped_words], u32 tile, WarpPart part) {
  float kept[score_rows][2 * score_fragments][4];
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) kept[m][n][e] = scores[m][n][e];
  drop(kept, dropped, 1.0f);
  store_scores(kept, tile, part);
}
