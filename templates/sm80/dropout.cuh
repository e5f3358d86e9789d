// Dropout on a tile of probabilities. `row` is the warp's first query row, `key` the tile's first key.

/// Dropped probabilities become 0; the factor of the others is the output's.
__device__ __forceinline__ void drop_probabilities(float (&probabilities)[m_fragments][n_fragments][4],
                                                   const DropoutParameters& p, int head, int row, int key) {
  constexpr int across = n_fragments / 2, fragments = m_fragments * across;
#pragma unroll
  for (int i = 0; i < fragments; i += 2) {
    const int next = minimum(i + 1, fragments - 1);
    u32 words[2][2];
    draw_fragments<false>(words, p, head, row + i / across * 16, key + i % across * 16,
                          row + next / across * 16, key + next % across * 16);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const int fragment = i + j / 8, m = fragment / across, n = fragment % across * 2 + j / 4 % 2;
      const int half = j / 2 % 2, e = j % 2;
      if (fragment < fragments && is_dropped(words[j / 8][e], 2 * half + j / 4 % 2, p.threshold))
        probabilities[m][n][2 * half + e] = 0.0f;
    }
  }
}
