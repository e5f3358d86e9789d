// Attention sinks: a logit of each query head joins the denominator of its rows.

__device__ __forceinline__ float sink_logit(const ForwardParameters& p, int head) {
  return p.sink_bytes == 4 ? global_load((const float*)p.sinks + head)
                           : load_element((const u16*)p.sinks + head);
}

/// In powers of two.
__device__ __forceinline__ float sink_of(const ForwardParameters& p, int head) {
  return sink_logit(p, head) * log2_e;
}

/// `sum` counts in units of 2^reference (-inf: no key seen). Gives the factor that turns the row's output
/// into shares of the whole sum, and the whole sum's natural logarithm. The larger of the two sets the scale,
/// so that nothing overflows.
__device__ __forceinline__ float join_sink(float sink, float reference, float sum, float& log_sum) {
  const float larger = maximum(sink, reference);
  const float own = reference == larger ? 1.0f : exp2_approximate(reference - larger);
  const float whole = sum * own + (sink == larger ? 1.0f : exp2_approximate(sink - larger));
  log_sum = (larger + log2_approximate(whole)) * ln_2;
  return own * reciprocal_approximate(whole);
}
