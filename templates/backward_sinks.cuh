// The gradients of the sinks: minus the sum over a head's rows of the sink's share of the row times what dP
// is reduced by there. Summed up in an order that depends on the lengths alone.

/// Of one row, of which `lse` is the natural LSE.
__device__ __forceinline__ float sink_term(const ForwardParameters& p, int head, float lse, float row_term) {
  // A row without keys whose sink is -inf has an LSE of -inf.
  if (lse == minus_infinity) return 0.0f;
  return -exp2_approximate(minimum((sink_logit(p, head) - lse) * log2_e, 0.0f)) * row_term;
}

/// `sum` is this thread's, of a tile of query rows.
__device__ __forceinline__ void store_sink_terms(const BackwardParameters& p, int tile, float sum) {
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
  if (thread_index() % 32 == 0) global_store_float(p.sink_terms + tile * 4LL + thread_index() / 32, sum);
}

/// All batches of a query head, by one warp.
__device__ __forceinline__ void finish_sinks(const BackwardParameters& p, int head) {
  if (thread_index() >= 32 || !p.d_sinks) return;
  const long long terms = 4LL * p.forward.m_tiles, all_heads = terms * p.forward.heads;
  float sum = 0.0f;
#pragma unroll 1
  for (long long first = head * terms; first < 4LL * p.query_blocks; first += all_heads)
#pragma unroll 4
    for (long long i = thread_index(); i < terms; i += 32) sum += global_load_float(p.sink_terms + first + i);
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
  if (thread_index() == 0) global_store_float(p.d_sinks + head, sum);
}
