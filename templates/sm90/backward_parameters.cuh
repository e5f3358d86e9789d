// What one launch of a Hopper backward kernel varies beside BackwardParameters. The host includes this very
// file, so both sides share one layout.

/// Boxes of 64 columns by block_m rows (q, d_out) or block_n rows (k, v), swizzled in 128-byte rows.
struct HopperBackwardParameters {
  TensorMap q_map, k_map, v_map, d_out_map;
  BackwardParameters backward;
  /// Two zeros, left as zeros: see HopperForwardParameters.
  int* counters;
};
