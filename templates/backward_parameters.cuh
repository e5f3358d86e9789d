// What one launch of the backward pass varies: one structure for its three kernels. The host includes this
// very file, so both sides share one layout.

/// The kernels run one after the other:
///   attention_backward_prepare  a block per tile of query rows: row terms, LSE in powers of two, sums of dQ
///   zeroed; attention_backward          a block per tile of keys and KV head: dK and dV stored, dQ added to
///   its sums; attention_backward_finish   a block per tile of query rows: dQ scaled, rounded and stored.
/// The first is the same for all families (backward_prepare.cuh), the others are each family's own.
struct BackwardParameters {
  ForwardParameters forward;  // q, k, v, out and lse are read here; lse is never null
  TensorParameters d_out, dq, dk, dv;
  const float* d_lse;  // the gradient of LSE, as LSE; null: zeros
  // The workspace. Query rows are those of whole tiles, m_tiles * block_m a head, heads of all batches in a
  // row.
  float* dq_sums;   // dq_tile_floats a tile of query rows, in the family's own order; not scaled yet
  float* lse_log2;  // LSE times log2(e); +inf for rows that see no key, and beyond the last row: P is 0 there
  float* row_terms;  // rowsum(dO * O) - dLSE, what dP is reduced by
  int* turns;  // deterministic: key tiles that have added to each part (turns_per_tile) of each tile of query
               // rows; behind them the number that the next tile of keys takes
  int query_blocks;   // tiles of query rows of all heads and batches
  int n_tiles;        // tiles of keys per KV head
  int key_blocks;     // tiles of keys of all KV heads and batches
  int section_heads;  // KV heads of the batch whose tiles are computed together
  float* sink_terms;  // sinks: each prepare warp's part of its tile's rows, 4 a tile of query rows
  float* d_sinks;     // of each query head; null: not wanted
  int* row_ranges;    // mask expressions: the query rows that see each tile of keys (backward_ranges.cuh)
};
