// Online softmax over a warpgroup's accumulator: thread t of the group holds, of rows t / 4 % 8 + 16 * (t /
// 32) and 8 below, two neighbouring columns of every eight: element 4 i + 2 half + e is column 8 i + 2 (t %
// 4) + e of row half.

/// Exponents are scale_log2 * score + offset, one fused multiply-add; offset = -scale_log2 * maximum is
/// rounded, a factor that all of a row shares and the final division undoes. Beyond largest_offset a row with
/// a single tile of keys is shifted by its maximum first, exactly; any other becomes NaN: a branch in the
/// main loop costs 5 to 8 % of its speed, and so does a factor that is not a constant.
struct SoftmaxState {
  float maximum[2];
  float offset[2];  // +inf: no key seen yet
  float sum[2];     // this thread's share
};

__device__ __forceinline__ void start_softmax(SoftmaxState& state) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    state.maximum[half] = minus_infinity;
    state.offset[half] = -minus_infinity;
    state.sum[half] = 0.0f;
  }
}

/// Fp16 probabilities overflow at 2^16 and lose bits below 2^-14.
constexpr float largest_offset = element_is_bf16 ? 1073741824.0f : 33554432.0f;

/// Which of a window's sides run through a tile: most have one at most.
struct Sides {
  bool left, right;  // right: the end of the sequence, too
};

__device__ __forceinline__ void mask_scores(float (&scores)[block_n / 2], const Sequence& sequence,
                                            const Sides& sides, int row, int key) {
  const int column = thread_index() % 4 * 2;
  const KeyLimits limits = key_limits(sequence, row, key + column);
  const int keys_left = sequence.keys - key - column;
  int further = 8;  // the lower row sees so many keys more
  if (grouped) further /= pack_group;
  if (!limited_left || sides.right) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int high = limited_right ? minimum(limits.high + half * further, keys_left) : keys_left;
#pragma unroll
      for (int i = 0; i < block_n / 8; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (i * 8 + e >= high) scores[4 * i + 2 * half + e] = minus_infinity;
    }
  }
  if (limited_left && sides.left) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < block_n / 8; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (i * 8 + e < limits.low + half * further) scores[4 * i + 2 * half + e] = minus_infinity;
  }
}

/// With lazy_rescale the maximum may lag, so that the output is rarely rescaled: 3 to 6 % at head dim 256.
constexpr float maximum_lag = 8.0f;

/// Two independent chains for maxima and sums: one has too little to issue between its dependent steps.
constexpr int chains = 2;

/// The largest score of each row in the tile.
__device__ __forceinline__ void row_maxima(float (&largest)[2], float (&scores)[block_n / 2]) {
  float partial[2][chains];
#pragma unroll
  for (int i = 0; i < block_n / 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float score = scores[4 * (i / 2) + 2 * half + i % 2];
      partial[half][i % chains] = i < chains ? score : maximum(partial[half][i % chains], score);
    }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    largest[half] = maximum(partial[half][0], partial[half][1]);
    largest[half] = maximum(largest[half], shuffle_xor(largest[half], 1));
    largest[half] = maximum(largest[half], shuffle_xor(largest[half], 2));
  }
}

/// Scores become probabilities relative to the running maximum; `largest` are the tile's maxima, `correction`
/// becomes the factor for the old output. `checked`: a row may have seen no key so far.
template <bool checked>
__device__ __forceinline__ void update_softmax(float (&scores)[block_n / 2], float (&largest)[2],
                                               SoftmaxState& state, float (&correction)[2],
                                               float scale_log2) {
  float offset[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    largest[half] = maximum(largest[half], state.maximum[half]);
    if (lazy_rescale)
      largest[half] = (largest[half] - state.maximum[half]) * scale_log2 > maximum_lag ? largest[half]
                                                                                       : state.maximum[half];
    offset[half] = checked && largest[half] == minus_infinity ? 0.0f : -largest[half] * scale_log2;
    correction[half] = exp2_approximate(offset[half] - state.offset[half]);
    state.sum[half] *= correction[half];
  }
  float partial[2][chains];
#pragma unroll
  for (int i = 0; i < block_n / 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& score = scores[4 * (i / 2) + 2 * half + i % 2];
      score = exp2_approximate(score * scale_log2 + offset[half]);
      partial[half][i % chains] = i < chains ? score : partial[half][i % chains] + score;
    }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    state.sum[half] += partial[half][0] + partial[half][1];
    if (absolute(offset[half]) > largest_offset) state.sum[half] = not_a_number;
    state.maximum[half] = largest[half];
    state.offset[half] = checked && largest[half] == minus_infinity ? -minus_infinity : offset[half];
  }
}

/// Before the first tile's softmax: rows with enormous scores are shifted by their maximum.
__device__ __forceinline__ void shift_scores(float (&scores)[block_n / 2], float (&largest)[2],
                                             float (&shift)[2], float scale_log2) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool enormous =
        absolute(largest[half] * scale_log2) > largest_offset && largest[half] != minus_infinity;
    shift[half] = enormous ? largest[half] : 0.0f;
    largest[half] -= shift[half];
  }
  if (shift[0] == 0.0f && shift[1] == 0.0f) return;
#pragma unroll
  for (int i = 0; i < block_n / 2; ++i) scores[i] -= shift[i / 2 % 2];
}

/// After it: the state speaks of the scores as they were; with more tiles to come a shifted row is lost.
__device__ __forceinline__ void unshift(SoftmaxState& state, float (&shift)[2], bool only_tile,
                                        float scale_log2) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    state.maximum[half] += shift[half];
    state.offset[half] -= shift[half] * scale_log2;
    if (shift[half] != 0.0f && !only_tile) state.sum[half] = not_a_number;
  }
}

/// The accumulator's layout is that of the A operand of the next product.
__device__ __forceinline__ void pack_probabilities(u32 (&packed)[block_n / 4], float (&scores)[block_n / 2]) {
#pragma unroll
  for (int i = 0; i < block_n / 4; ++i) packed[i] = pack_element(scores[2 * i], scores[2 * i + 1]);
}

__device__ __forceinline__ void rescale(float (&output)[head_dim_v / 2], float (&correction)[2]) {
#pragma unroll
  for (int i = 0; i < head_dim_v / 2; ++i) output[i] *= correction[i / 2 % 2];
}
