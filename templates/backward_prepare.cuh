// Before the backward kernel: what each query row brings to it, and zeros for the sums of dQ.

constexpr int lanes_per_row = 8;

/// Sum of the products of eight elements with eight others.
__device__ __forceinline__ float dot_8(const u16* a, const u16* b) {
  u32 x[4], y[4];
  global_load_16(x, a);
  global_load_16(y, b);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum += unpack_low(x[i]) * unpack_low(y[i]);
    sum += unpack_high(x[i]) * unpack_high(y[i]);
  }
  return sum;
}

/// Where the rounding of an LSE could make probabilities overflow, far beyond sense, they become 0 instead.
__device__ __forceinline__ float shifted_if_enormous(float lse_log2) {
  constexpr float enormous = 268435456.0f, more_than_rounding = 1.0f / 1048576.0f;
  const float size = absolute(lse_log2);
  return size > enormous ? lse_log2 + size * more_than_rounding : lse_log2;
}

__device__ __forceinline__ void start_turns(const BackwardParameters& p, int tile) {
  if (thread_index() >= turns_per_tile) return;
  global_store_int(p.turns + tile * (long long)turns_per_tile + thread_index(), 0);
  if (tile == 0 && thread_index() == 0)
    global_store_int(p.turns + p.query_blocks * (long long)turns_per_tile, 0);
}

__device__ __forceinline__ void prepare(const BackwardParameters& p, const ExpressionArguments& e) {
  if (masked_by_function) find_row_ranges(p, e);
  const int tile = block_index(), lane = thread_index() % lanes_per_row;
  const RowsPlace place = rows_place(p, tile);
  if (packed_layout && place.row >= place.rows) {
    if (deterministic) start_turns(p, tile);
    if (with_sinks) store_sink_terms(p, tile, 0.0f);
    return;
  }
  const int batch = place.batch, head = place.head, row = place.first_query + place.row;
  const u16* out = (const u16*)p.forward.out.data + batch * p.forward.out.batch_stride +
                   head * p.forward.out.head_stride + row * p.forward.out.row_stride;
  const u16* d_out = (const u16*)p.d_out.data + batch * p.d_out.batch_stride + head * p.d_out.head_stride +
                     row * p.d_out.row_stride;
  const long long first_of_head = (long long)place.head_index * p.forward.seqlen_q + row;
  [[maybe_unused]] float sink_terms = 0.0f;
#pragma unroll 1
  for (int i = thread_index() / lanes_per_row; i < block_m; i += prepare_threads / lanes_per_row) {
    const bool live = place.row + i < place.rows;
    float sum = 0.0f;
    if (live) {
#pragma unroll
      for (int c = 0; c < head_dim_v; c += lanes_per_row * 8)
        if (c + lane * 8 < head_dim_v)
          sum += dot_8(out + i * p.forward.out.row_stride + c + lane * 8,
                       d_out + i * p.d_out.row_stride + c + lane * 8);
    }
#pragma unroll
    for (int mask = 1; mask < lanes_per_row; mask *= 2) sum += shuffle_xor(sum, mask);
    if (lane == 0) {
      const float lse = live ? global_load_float(p.forward.lse + first_of_head + i) : minus_infinity;
      if (with_lse && live && p.d_lse) sum -= global_load_float(p.d_lse + first_of_head + i);
      if (with_sinks && live) sink_terms += sink_term(p.forward, head, lse, sum);
      const long long to = (long long)tile * block_m + i;
      float lse_log2 = lse == minus_infinity ? -minus_infinity : lse * log2_e;
      if (shifts_enormous_lse) lse_log2 = shifted_if_enormous(lse_log2);
      global_store_float(p.lse_log2 + to, lse_log2);
      global_store_float(p.row_terms + to, sum);
    }
  }
  if (with_sinks) store_sink_terms(p, tile, sink_terms);
  float* sums = p.dq_sums + (long long)tile * dq_tile_floats;
#pragma unroll 4
  for (int i = thread_index() * 4; i < dq_tile_floats; i += prepare_threads * 4)
    global_store_16(sums + i, 0, 0, 0, 0);
  if (deterministic) start_turns(p, tile);
}
