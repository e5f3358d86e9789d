// Layouts bshd and bhsd: all sequences of a launch have the same lengths.

__device__ __forceinline__ Sequence launch_sequence(const ForwardParameters& p) {
  return {p.seqlen_q, p.seqlen_kv};
}
