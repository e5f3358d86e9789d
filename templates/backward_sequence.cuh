// What a launch's sequences are: all are alike.

__device__ __forceinline__ Sequence sequence_of(const BackwardParameters& p) {
  return {p.forward.seqlen_q, p.forward.seqlen_kv};
}
