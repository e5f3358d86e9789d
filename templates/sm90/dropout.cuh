// Dropout on a consumer's probabilities. `row` is this thread's first query row, `key` the tile's first key.

/// Dropped probabilities become 0; the factor of the others is the output's.
__device__ __forceinline__ void drop_probabilities(float (&probabilities)[block_n / 2],
                                                   const DropoutParameters& p, int head, int row, int key) {
#pragma unroll
  for (int i = 0; i < block_n; i += 32) {
    u32 words[2][2];
    draw_fragments<false>(words, p, head, row, key + i, row, key + i + 16);
#pragma unroll
    for (int j = 0; j < 16; ++j)
      if (i / 2 + j < block_n / 2 && is_dropped(words[j / 8][j % 2], j / 2 % 2 * 2 + j / 4 % 2, p.threshold))
        probabilities[i / 2 + j] = 0.0f;
  }
}
