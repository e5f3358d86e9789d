// A consumer: a warpgroup that computes dK and dV of 64 keys, or half of their columns. What it does with a
// block of query rows, and in what order, is differentiate_block().

/// What stays the same for a consumer. Descriptors are the low words, see warpgroup_descriptor; transposed,
/// and middle: of an operand that is transposed on the way.
struct BackwardConsumer {
  int group;
  int first_row;  // of a block's rows, of its scores
  u32 keys, values, queries, gradients;
  u32 queries_transposed, gradients_transposed, keys_transposed;
  u32 queries_middle, gradients_middle, keys_middle;
  u32 probabilities, ds;
  u32 ds_store;  // address of this thread's first 16 bytes
  u32 dq;        // the consumer's part of the buffer
  u32 lse;       // of this thread's first rows; their row terms are row_terms_after_lse behind
  float scale_log2;
  const ExpressionArguments* expressions;
};

/// A part of the columns of a tile.
__device__ __forceinline__ u32 columns_descriptor(u32 tile, int panel_bytes, int column) {
  return warpgroup_descriptor(tile + column / 64 * panel_bytes + column % 64 * 2, panel_bytes);
}

__device__ __forceinline__ BackwardConsumer make_consumer(const HopperBackwardParameters& p,
                                                          const BackwardLayout& layout,
                                                          const ExpressionArguments& e, int group) {
  const int thread = thread_index() % 128, warp = thread / 32, lane = thread % 32;
  const int keys = splits_columns ? 0 : group * 64, rows = splits_columns ? group * score_rows : 0;
  BackwardConsumer me;
  me.group = group;
  me.first_row = rows;
  me.keys = warpgroup_descriptor(layout.key() + keys * 128, 16);
  me.values = warpgroup_descriptor(layout.value() + keys * 128, 16);
  me.queries = warpgroup_descriptor(layout.query(0) + rows * 128, 16);
  me.gradients = warpgroup_descriptor(layout.gradient(0) + rows * 128, 16);
  me.lse = layout.lse(0) + rows * 4 + thread % 4 * 8;
  me.expressions = &e;
  me.scale_log2 = with_changed_scores ? log2_e : p.backward.forward.scale_log2;
  if (splits_columns) {
    const int qk = whole_column(panels_qk, group), v = whole_column(panels_v, group);
    me.queries_transposed = columns_descriptor(layout.query(0), row_panel_bytes, qk);
    me.gradients_transposed = columns_descriptor(layout.gradient(0), row_panel_bytes, v);
    me.keys_transposed = columns_descriptor(layout.key(), key_panel_bytes, qk);
    const int qk_middle = middle_column(panels_qk, group), v_middle = middle_column(panels_v, group);
    me.queries_middle = columns_descriptor(layout.query(0), row_panel_bytes, qk_middle);
    me.gradients_middle = columns_descriptor(layout.gradient(0), row_panel_bytes, v_middle);
    me.keys_middle = columns_descriptor(layout.key(), key_panel_bytes, qk_middle);
    me.probabilities = warpgroup_descriptor(layout.ds(0), 16);
    me.ds = warpgroup_descriptor(layout.ds(0) + row_panel_bytes, 16);
    const int key = warp * 16 + lane % 16, chunk = group * score_rows / 8 + lane / 16;
    me.ds_store = layout.ds(0) + key * 128 + (chunk ^ key % 8) * 16;
  } else {
    me.queries_transposed = columns_descriptor(layout.query(0), row_panel_bytes, 0);
    me.gradients_transposed = columns_descriptor(layout.gradient(0), row_panel_bytes, 0);
    // dQ of 128 rows is shared by rows, of 64 by columns.
    me.keys_transposed =
        columns_descriptor(layout.key(), key_panel_bytes, block_m == 64 ? group * dq_columns : 0);
    me.ds = warpgroup_descriptor(layout.ds(0) + (block_m == 64 ? 0 : group * 8192), 16);
    const int row = lane % 8 + lane / 16 * 8, chunk = 2 * warp + lane / 8 % 2;
    me.ds_store = layout.ds(0) + group * row_panel_bytes + row * 128 + (chunk ^ lane % 8) * 16;
    me.dq = layout.dq(group);
  }
  return me;
}

/// A block of query rows: of `rows`, of one query head of the group after the other.
struct RowBlock {
  int m;
  int head;         // of all heads and batches
  RingPlace place;  // of Q and dO
  int count;        // blocks before it, over all tiles: dS buffers alternate
};

__device__ __forceinline__ void advance(RowBlock& block, const RowTiles& rows) {
  if (++block.m == rows.end) {
    block.m = rows.begin;
    if (gqa_ratio > 1) ++block.head;
  }
  block.place = ring_place(++block.count);
}

/// In the order of registers, as the products left them; attention_backward_finish knows it.
__device__ __forceinline__ void write_dq(const BackwardConsumer& me, float (&dq)[dq_columns / 2]) {
  named_barrier_wait<160>(dq_free(me.group));
  const u32 to =
      me.dq + opaque(thread_index()) % 128 * 16;  // anew every time: no register for it over the loop
#pragma unroll
  for (int i = 0; i < dq_columns / 8; ++i)
    shared_store_16(to + i * 2048, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
  fence_async_shared();
  named_barrier_arrive<160>(dq_full(me.group));
}

/// The same, from registers straight to the sums; deterministic in turns, which a warp keeps
/// (send_dq_in_turns). `row` is the block's first, for this consumer's scores.
__device__ __forceinline__ void add_dq(const HopperBackwardParameters& p, const BackwardConsumer& me,
                                       int head, int row, float (&dq)[dq_columns / 2]) {
  const long long tile = (long long)head * p.backward.forward.m_tiles + row / block_m;
  float* to =
      p.backward.dq_sums + tile * dq_tile_floats + me.group * 64 * dq_columns + thread_index() % 128 * 4;
  if (deterministic) named_barrier_wait<160>(dq_free(me.group));
#pragma unroll
  for (int i = 0; i < dq_columns / 8; ++i)
    global_sum_4(to + i * 512, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
  if (deterministic) named_barrier_arrive<160>(dq_full(me.group));
}

/// The warpgroups take turns on the tensor cores.
__device__ __forceinline__ void take_turn(const BackwardConsumer& me) {
  named_barrier_wait<256>(5 + me.group);
}

__device__ __forceinline__ void pass_turn(const BackwardConsumer& me) {
  named_barrier_arrive<256>(6 - me.group);
}
