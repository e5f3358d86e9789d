// From scores and dP to P and dS, in registers and then in shared memory.

/// What a thread's rows bring: LSE in powers of two, and what dP is reduced by.
struct RowTerms {
  float lse_log2[score_rows][2];
  float term[score_rows][2];
};

/// `first` is the warp's first row of the workspace.
__device__ __forceinline__ void load_row_terms(const BackwardParameters& p, RowTerms& rows, long long first) {
  const int lane = thread_index() % 32;
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const long long row = first + m * 16 + half * 8 + lane / 4;
      rows.lse_log2[m][half] = global_load_float(p.lse_log2 + row);
      rows.term[m][half] = global_load_float(p.row_terms + row);
    }
}

/// Sets the scores of keys that a row does not see to -inf. `row` is the warp's first query row, `key` its
/// first key.
__device__ __forceinline__ void mask_scores(float (&scores)[score_rows][2 * score_fragments][4],
                                            const Sequence& sequence, int row, int key) {
  const int lane = thread_index() % 32, column = lane % 4 * 2;
  const KeyLimits limits = key_limits(sequence, row + lane / 4, key + column);
  const int keys_left = sequence.keys - key - column;
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int further = m * 16 + half * 8;
      const int high = limited_right ? minimum(limits.high + further, keys_left) : keys_left;
#pragma unroll
      for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (n * 8 + e >= high || (limited_left && n * 8 + e < limits.low + further))
            scores[m][n][half * 2 + e] = minus_infinity;
    }
}

/// Beyond this the rounding of scale * score - LSE in one multiply-add would show (2^-14 in the exponent).
constexpr float largest_fused_lse = 1024.0f;

/// Scores become probabilities, 2^(scale_log2 * score - LSE). `lse` points at the LSE of the head's first row
/// and `row` is the warp's.
__device__ __forceinline__ void compute_probabilities(float (&scores)[score_rows][2 * score_fragments][4],
                                                      const RowTerms& rows, const BackwardParameters& p,
                                                      const float* lse, int row) {
  const float scale_log2 = with_changed_scores ? log2_e : p.forward.scale_log2;
  bool large = false;
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      large |=
          absolute(rows.lse_log2[m][half]) > largest_fused_lse && rows.lse_log2[m][half] != -minus_infinity;
  if (warp_any(large)) {
    // As the forward kernel rounds: the score of a row's only key less its LSE is then exactly 0. What is
    // left of a rounding must not become a probability above 1.
    const float scale = with_changed_scores ? 1.0f : p.forward.scale;
#pragma unroll
    for (int m = 0; m < score_rows; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int my_row = row + m * 16 + half * 8 + thread_index() % 32 / 4;
        const float sum = my_row < sequence_of(p).queries ? global_load_float(lse + my_row) : minus_infinity;
        const float offset = sum == minus_infinity ? -minus_infinity : sum;
#pragma unroll
        for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& score = scores[m][n][half * 2 + e];
            score = exp2_approximate(minimum((multiply_rounded(score, scale) - offset) * log2_e, 0.0f));
          }
      }
    return;
  }
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[m][n][e] = exp2_approximate(scores[m][n][e] * scale_log2 - rows.lse_log2[m][e / 2]);
}

/// dP becomes dS = P (dP - row term).
__device__ __forceinline__ void compute_score_gradients(
    float (&gradients)[score_rows][2 * score_fragments][4],
    const float (&probabilities)[score_rows][2 * score_fragments][4], const RowTerms& rows) {
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        gradients[m][n][e] = probabilities[m][n][e] * (gradients[m][n][e] - rows.term[m][e / 2]);
}

/// Writes the warp's part of P or dS, rounded, to a tile [block_m][block_n].
__device__ __forceinline__ void store_scores(const float (&scores)[score_rows][2 * score_fragments][4],
                                             u32 tile, WarpPart part) {
  const int lane = thread_index() % 32, row = part.first_row * 16 + lane / 4;
  const u32 to = tile + row * row_bytes(block_n) + lane % 4 * 4;
#pragma unroll
  for (int m = 0; m < score_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * score_fragments; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        shared_store_word(to + (m * 16 + half * 8) * row_bytes(block_n) +
                              (part.first_column * 2 + n ^ swizzle(block_n, row)) * 16,
                          pack_element(scores[m][n][half * 2], scores[m][n][half * 2 + 1]));
}
