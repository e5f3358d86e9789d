// What one launch of a Hopper forward kernel varies. The host includes this very file, so both sides share
// one layout.

/// A tensor map (CUtensorMap): made by the host, read by the copy engine alone.
struct __attribute__((aligned(64))) TensorMap {
  unsigned long long words[16];
};

/// The maps have rank 4: columns, rows, heads, batch; boxes of 64 columns by 64 rows (q) or block_n rows (k,
/// v), swizzled in 128-byte rows.
struct HopperForwardParameters {
  TensorMap q_map, k_map, v_map;
  int tiles;          // tiles of query rows of all heads and batches
  int section_heads;  // heads of the batch whose K and V share L2: their tiles are computed together
  /// Two zeros, left as zeros: tiles given out beyond the first of each block, and blocks that are done.
  /// Null: as many blocks as tiles, each computes one.
  int* counters;
  ForwardParameters forward;
};
