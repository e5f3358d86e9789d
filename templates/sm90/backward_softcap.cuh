// From products to probabilities without an expression: soft cap, mask, exponential.

/// `head` counts over all batches; `row` is the block's first for this consumer's scores, `key` this thread's
/// first; `lse` as for compute_probabilities.
__device__ __forceinline__ void find_probabilities(const HopperBackwardParameters& p,
                                                   const BackwardConsumer& me,
                                                   float (&scores)[score_rows / 2],
                                                   u32 (&probabilities)[score_rows / 4], int, bool masked,
                                                   int row, int key, u32 lse) {
  if (with_softcap) cap_transposed(scores, p.backward.forward.scale);
  if (masked) mask_transposed(scores, sequence_of(p.backward), row, key);
  compute_probabilities(scores, probabilities, lse, me.scale_log2);
}
