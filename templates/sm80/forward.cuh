// The forward kernel: one block computes one tile of query rows of one head, from the last visible key to the
// first.

/// This thread's place in the next tile of K and of V; both walk down. In a walk with gaps: in tile 0.
struct KeyValueSource {
  const u16* k;
  const u16* v;
};

/// Starts loading tile `j` unless the walk ends before it. Only the last tile of the sequence, the first
/// loaded, is `partial`.
template <bool partial>
__device__ __forceinline__ void load_keys(const ForwardParameters& p, KeyValueSource& source, u32 tile, int j,
                                          const KeyWalk& walk, const Sequence& sequence) {
  const long long further = walk_is_dense ? 0 : (long long)j * block_n * p.k.row_stride;
  if (walk.visits(j))
    load_tile<block_n, head_dim_qk, partial>(tile, source.k + further, p.k.row_stride,
                                             sequence.keys - j * block_n);
  if (walk_is_dense) source.k -= block_n * p.k.row_stride;
}

template <bool partial>
__device__ __forceinline__ void load_values(const ForwardParameters& p, KeyValueSource& source, u32 tile,
                                            int j, const KeyWalk& walk, const Sequence& sequence) {
  const long long further = walk_is_dense ? 0 : (long long)j * block_n * p.v.row_stride;
  if (walk.visits(j))
    load_tile<block_n, head_dim_v, partial>(tile, source.v + further, p.v.row_stride,
                                            sequence.keys - j * block_n);
  if (walk_is_dense) source.v -= block_n * p.v.row_stride;
}

__device__ __forceinline__ void forward(const ForwardParameters& p, const ExpressionArguments& e) {
  const BlockPlace place = find_place(p);
  const Sequence sequence = sequence_of(p);
  const Scope scope = scope_of(sequence, e, place.batch, place.head);
  const int row = place.row, kv_head = place.head / gqa_ratio;
  const u16* q = (const u16*)p.q.data + place.batch * p.q.batch_stride + place.head * p.q.head_stride +
                 (place.first_query + row) * p.q.row_stride;
  const u16* k = (const u16*)p.k.data + place.batch * p.k.batch_stride + kv_head * p.k.head_stride +
                 place.first_key * p.k.row_stride;
  const u16* v = (const u16*)p.v.data + place.batch * p.v.batch_stride + kv_head * p.v.head_stride +
                 place.first_key * p.v.row_stride;

  KeyWalk walk = start_walk(sequence, scope, row);
  if (with_block_list) follow_list(walk, p, place.batch, place.head, row);
  const int last = walk.ahead(0), from = walk_is_dense ? last : 0;
  KeyValueSource source = {tile_source<head_dim_qk>(k + from * block_n * p.k.row_stride, p.k.row_stride),
                           tile_source<head_dim_v>(v + from * block_n * p.v.row_stride, p.v.row_stride)};
  const u32 query_tile = shared_base();
  const u32 ring = query_tile + query_tile_bytes;
  constexpr int stage_bytes = key_tile_bytes + value_tile_bytes;

  // Groups of copies are closed also when there is no tile left to load: their count tells what has landed.
  load_tile<block_m, head_dim_qk, true>(query_tile, tile_source<head_dim_qk>(q, p.q.row_stride),
                                        p.q.row_stride, sequence.queries - row);
  load_keys<true>(p, source, ring, last, walk, sequence);
  load_values<true>(p, source, ring + key_tile_bytes, last, walk, sequence);
  copy_async_commit();
#pragma unroll
  for (int s = 1; s < stages - 1; ++s) {
    load_keys<with_block_list>(p, source, ring + s * stage_bytes, walk.ahead(s), walk, sequence);
    load_values<with_block_list>(p, source, ring + s * stage_bytes + key_tile_bytes, walk.ahead(s), walk,
                                 sequence);
    copy_async_commit();
  }

  float output[m_fragments][columns_v / 8][4];
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int n = 0; n < columns_v / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) output[m][n][e] = 0.0f;
  SoftmaxState state;
  start_softmax(state);

  constexpr int groups_in_flight = stages > 1 ? stages - 2 : 0;
  u32 held[query_fragments][m_fragments][4];
  if (query_in_registers) {
    copy_async_wait<groups_in_flight>();  // Q travels in the first group
    block_barrier();
#pragma unroll
    for (int i = 0; i < query_fragments; ++i) load_query_fragment(held[i], query_address(query_tile), i);
  }
  const int head_index = place.batch * p.heads + place.head;
  const int warp_row = row + thread_index() / 32 * (m_fragments * 16);
  const float scale_log2 = with_changed_scores ? log2_e : p.scale_log2;

  int stage = 0;
  bool first = true;
#pragma unroll 1
  for (; walk.visits(walk.ahead(0)); walk.step(sequence_of(p), scope, row)) {
    const int j = walk.ahead(0);
    // A dozen swizzled addresses follow from these two: cheaper to compute again than to hold.
    const u32 tile = opaque(ring + stage * stage_bytes), query = query_address(opaque(query_tile));
    copy_async_wait<groups_in_flight>();
    block_barrier();  // tile j is there for all, and all have left tile j + 1, whose place the next load
                      // takes
    if (stages > 1) {
      const u32 free_stage = ring + (stage == 0 ? stages - 1 : stage - 1) * stage_bytes;
      load_keys<with_block_list>(p, source, free_stage, walk.ahead(stages - 1), walk, sequence);
      load_values<with_block_list>(p, source, free_stage + key_tile_bytes, walk.ahead(stages - 1), walk,
                                   sequence);
    } else if (with_block_list ? !first : j < last) {
      load_values<with_block_list>(p, source, tile + key_tile_bytes, j, walk, sequence);
    }
    copy_async_commit();
    float scores[m_fragments][n_fragments][4];
    compute_scores(scores, held, query, key_address(tile));
    if (stages == 1) {
      copy_async_wait<0>();
      block_barrier();  // V is there for all, and all have left K
      load_keys<with_block_list>(p, source, tile, walk.ahead(1), walk, sequence);
      copy_async_commit();
    }
    if (with_changed_scores) change_scores(scores, p.scale, sequence_of(p), scope, warp_row, j * block_n);
    if (walk.is_below_full() || walk.is_above_full()) {
      if (!masked_by_limits) mask_scores(scores, sequence_of(p), warp_row, j * block_n);
      if (masked_by_limits) hide_scores_beyond(scores, sequence_of(p), scope, warp_row, j * block_n);
      if (masked_by_function) hide_scores(scores, sequence_of(p), scope, warp_row, j * block_n);
    }
    update_softmax(scores, state, output, scale_log2);
    if (with_dropout) drop_probabilities(scores, p.dropout, head_index, warp_row, j * block_n);
    accumulate_output(output, scores, value_address(tile + key_tile_bytes));
    stage = stage == stages - 1 ? 0 : stage + 1;
    first = false;
  }
  copy_async_wait<0>();

  // The place is worked out anew: kept over the loop it would cost registers that the tiles need.
  const BlockPlace here = recall_place(p);
  u16* out = (u16*)p.out.data + here.batch * p.out.batch_stride + here.head * p.out.head_stride +
             here.first_query * p.out.row_stride;
  store_output(p, output, state, sequence_of(p), here.head, out,
               p.lse ? p.lse + here.head_index * p.seqlen_q + here.first_query : (float*)0,
               here.row + thread_index() / 32 * (m_fragments * 16));
}
