// The output of a tile, normalised and stored straight from registers: staging it through shared memory holds
// back the next Q and costs up to 10 % at 1k keys.

/// Natural logarithm of a row's sum of exponentials. The offset stands for the maximum as it was rounded.
__device__ __forceinline__ float log_sum_exp(const SoftmaxState& state, int half, float sum) {
  return (log2_approximate(sum) - state.offset[half]) * ln_2;
}

/// `row` is this thread's first row, the other is 8 below.
__device__ __forceinline__ void store_output(const ForwardParameters& p, float (&output)[head_dim_v / 2],
                                             SoftmaxState& state, const Tile& tile, const Sequence& sequence,
                                             int row) {
  const int quarter = thread_index() % 4;
  float sink = minus_infinity, log_sum = 0.0f;
  if (with_sinks) sink = sink_of(p, tile.head);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = state.sum[half];
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    const bool sees_no_key = sum == 0.0f;
    float factor = sees_no_key ? 0.0f : reciprocal_approximate(sum);
    if (grouped && with_sinks) sink = sink_of(p, grouped_head(tile, half));
    if (with_sinks) factor = join_sink(sink, -state.offset[half], sum, log_sum);
    if (with_dropout) factor *= p.dropout.factor;
    int my_row = row + half * 8, my_head = tile.head;
    if (grouped) my_row = row + half * (8 / pack_group), my_head = grouped_head(tile, half);
    const bool live = my_row < sequence.queries;
    if (with_lse && live && quarter == 0 && p.lse) {
      float logarithm = sees_no_key ? minus_infinity : log_sum_exp(state, half, sum);
      if (with_sinks) logarithm = log_sum;
      const long long head = (long long)tile.slice() * p.heads + my_head;
      global_store_float(p.lse + head * p.seqlen_q + tile.first_query + my_row, logarithm);
    }
    u16* to = (u16*)p.out.data + tile.slice() * p.out.batch_stride + my_head * p.out.head_stride +
              (tile.first_query + my_row) * p.out.row_stride + quarter * 8;
#pragma unroll
    for (int group = 0; group < (head_dim_v + 31) / 32; ++group) {
      u32 word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int chunk = group * 4 + i;
        const int at = chunk < head_dim_v / 8 ? chunk * 4 + half * 2 : 0;
        word[i] = chunk < head_dim_v / 8 ? pack_element(output[at] * factor, output[at + 1] * factor) : 0u;
      }
      transpose_quad(word);
      if (live && (head_dim_v % 32 == 0 || group * 32 + quarter * 8 < head_dim_v))
        global_store_16(to + group * 32, word[0], word[1], word[2], word[3]);
    }
  }
}
