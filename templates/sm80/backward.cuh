// The backward kernel: one block computes dK and dV of one tile of keys of one KV head, over all query rows
// that see it and all query heads that share it, and adds its part of dQ.

/// Where the walk over query heads and tiles of query rows stands.
struct QueryPlace {
  int head_index, m_tile;  // of all heads of the batch; of the head
  __device__ __forceinline__ int tile(const BackwardParameters& p) const {
    return head_index * p.forward.m_tiles + first_query_tile() + m_tile;
  }
};

__device__ __forceinline__ QueryPlace next_place(const QueryPlace& place, const QueryTiles& tiles) {
  if (place.m_tile + 1 < tiles.end) return {place.head_index, place.m_tile + 1};
  return {place.head_index + 1, tiles.begin};
}

/// Starts loading Q and dO of the place into a stage. Where they lie is worked out anew every time: pointers
/// kept over the loop would cost registers that the tiles need.
__device__ __forceinline__ void load_queries(const BackwardParameters& p, const QueryPlace& place,
                                             u32 stage) {
  const int head_index = (int)opaque((u32)place.head_index);
  const int batch = head_index / p.forward.heads, head = head_index % p.forward.heads;
  const int row = place.m_tile * block_m, rows_left = sequence_of(p).queries - row;
  const TensorParameters &q = p.forward.q, &d_out = p.d_out;
  load_tile<block_m, head_dim_qk, true>(
      stage,
      tile_source<head_dim_qk>((const u16*)q.data + batch * q.batch_stride + head * q.head_stride +
                                   (first_query() + row) * q.row_stride,
                               q.row_stride),
      q.row_stride, rows_left);
  load_tile<block_m, head_dim_v, true>(
      stage + query_tile_bytes,
      tile_source<head_dim_v>((const u16*)d_out.data + batch * d_out.batch_stride + head * d_out.head_stride +
                                  (first_query() + row) * d_out.row_stride,
                              d_out.row_stride),
      d_out.row_stride, rows_left);
}

template <int rows, int fragments>
__device__ __forceinline__ void set_to_zero(float (&values)[rows][2 * fragments][4]) {
#pragma unroll
  for (int m = 0; m < rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) values[m][n][e] = 0.0f;
}

__device__ __forceinline__ void backward(const BackwardParameters& p, const ExpressionArguments& e) {
  const u32 key_tile = shared_base(), value_tile = key_tile + key_tile_bytes;
  const u32 queries = value_tile + value_tile_bytes;
  const u32 p_tile = queries + stages * query_stage_bytes, ds_tile = p_tile + score_tile_bytes;
  int block = block_index();
  if (deterministic && p.forward.seqlen_q > 0) {
    // Whatever order the GPU starts blocks in, a number taken at the start is higher than those of all that
    // run.
    if (thread_index() == 0) shared_store_word(p_tile, (u32)global_take_number(p.turns + p.query_blocks));
    block_barrier();
    block = (int)shared_load_word(p_tile);
    block_barrier();
  }
  const KeyPlace place = find_key_place(p, block);
  const QueryTiles tiles =
      query_tiles(p, place.slice() * (p.forward.heads / gqa_ratio) + place.kv_head, place.key);
  const u16* k = (const u16*)p.forward.k.data + place.slice() * p.forward.k.batch_stride +
                 place.kv_head * p.forward.k.head_stride +
                 (place.first_key + place.key) * p.forward.k.row_stride;
  const u16* v = (const u16*)p.forward.v.data + place.slice() * p.forward.v.batch_stride +
                 place.kv_head * p.forward.v.head_stride +
                 (place.first_key + place.key) * p.forward.v.row_stride;
  load_tile<block_n, head_dim_qk, true>(key_tile, tile_source<head_dim_qk>(k, p.forward.k.row_stride),
                                        p.forward.k.row_stride, sequence_of(p).keys - place.key);
  load_tile<block_n, head_dim_v, true>(value_tile, tile_source<head_dim_v>(v, p.forward.v.row_stride),
                                       p.forward.v.row_stride, sequence_of(p).keys - place.key);

  float dk[dk_rows][2 * dk_fragments][4], dv[dv_rows][2 * dv_fragments][4];
  set_to_zero<dk_rows, dk_fragments>(dk);
  set_to_zero<dv_rows, dv_fragments>(dv);
  const WarpPart score_part = warp_part<score_row_warps, score_column_warps, score_rows, score_fragments>();
  const WarpPart dk_part = warp_part<dk_row_warps, dk_column_warps, dk_rows, dk_fragments>();
  const WarpPart dv_part = warp_part<dv_row_warps, dv_column_warps, dv_rows, dv_fragments>();
  const WarpPart dq_part = warp_part<dq_row_warps, dq_column_warps, dq_rows, dq_fragments>();

  QueryPlace here = {place.slice() * p.forward.heads + place.kv_head * gqa_ratio, tiles.begin};
  int left = (tiles.end - tiles.begin) * gqa_ratio;
  if (left > 0) load_queries(p, here, queries);
  copy_async_commit();
  int stage = 0;
  [[maybe_unused]] int tile_to_pass_on = -1;
#pragma unroll 1
  for (; left > 0; --left) {
    const int tile = here.tile(p), row = here.m_tile * block_m;
    // Nothing derived from the key is kept over the loop: at head dim 128 it would spill for sm_80, at 256
    // the other way round for sm_90a.
    const int key = columns_qk <= 128 ? (int)opaque((u32)place.key) : place.key;
    copy_async_wait<0>();
    block_barrier();  // Q and dO are there for all, and all have left the step before
    if (deterministic && tile_to_pass_on >= 0 && thread_index() == 0)
      global_end_turn(p.turns + tile_to_pass_on);
    const u32 query_tile = opaque(queries + stage * query_stage_bytes);
    const u32 d_out_tile = query_tile + query_tile_bytes;
    if (stages > 1 && left > 1) {
      load_queries(p, next_place(here, tiles), queries + (stage ^ 1) * query_stage_bytes);
      copy_async_commit();
    }

    RowTerms rows;
    load_row_terms(p, rows, (long long)tile * block_m + score_part.first_row * 16);
    [[maybe_unused]] u32 dropped[dropped_words];
    if (with_dropout)
      find_dropped(dropped, p.forward.dropout, head_of_all(p, here.head_index),
                   row + score_part.first_row * 16, key + score_part.first_column * 16);
    float scores[score_rows][2 * score_fragments][4], gradients[score_rows][2 * score_fragments][4];
    multiply_rows<score_rows, score_fragments, columns_qk>(
        scores, query_tile + score_part.first_row * 16 * row_bytes(columns_qk),
        key_tile + score_part.first_column * 16 * row_bytes(columns_qk));
    [[maybe_unused]] float slope[score_rows][2 * score_fragments][4];
    const Scope scope = scope_of(sequence_of(p), e, head_of_all(p, here.head_index) / p.forward.heads,
                                 here.head_index % p.forward.heads);
    if (with_changed_scores)
      change_scores(scores, slope, p.forward.scale, sequence_of(p), scope, row + score_part.first_row * 16,
                    key + score_part.first_column * 16);
    const auto seen = keys_seen(p, scope, tiles, here.m_tile, row);
    const int n_tile = key / block_n;
    if (n_tile < seen.full_begin || n_tile >= seen.full_end) {
      mask_scores(scores, sequence_of(p), row + score_part.first_row * 16,
                  key + score_part.first_column * 16);
      if (masked_by_function)
        hide_scores(scores, sequence_of(p), scope, row + score_part.first_row * 16,
                    key + score_part.first_column * 16);
    }
    compute_probabilities(scores, rows, p,
                          p.forward.lse + (long long)here.head_index * p.forward.seqlen_q + first_query(),
                          row + score_part.first_row * 16);
    if (!with_dropout) store_scores(scores, p_tile, score_part);
    if (with_dropout) store_kept(scores, dropped, p_tile, score_part);
    multiply_rows<score_rows, score_fragments, columns_v>(
        gradients, d_out_tile + score_part.first_row * 16 * row_bytes(columns_v),
        value_tile + score_part.first_column * 16 * row_bytes(columns_v));
    if (with_dropout) drop(gradients, dropped, p.forward.dropout.factor);
    compute_score_gradients(gradients, scores, rows);
    if (with_bias_gradient)
      add_bias_gradients(gradients, scope, row + score_part.first_row * 16,
                         key + score_part.first_column * 16);
    if (with_slope) apply_slope(gradients, slope);
    store_scores(gradients, ds_tile, score_part);
    block_barrier();  // P and dS are there for all

    multiply_columns<dv_rows, dv_fragments, dv_column_warps, block_m / 16, true, block_n, columns_v>(
        dv, p_tile, d_out_tile, dv_part);
    multiply_columns<dk_rows, dk_fragments, dk_column_warps, block_m / 16, true, block_n, columns_qk>(
        dk, ds_tile, query_tile, dk_part);
    if (stages == 1) {
      block_barrier();  // all have left Q and dO
      if (left > 1) load_queries(p, next_place(here, tiles), queries);
      copy_async_commit();
    }
    float dq[dq_rows][2 * dq_fragments][4];
    set_to_zero<dq_rows, dq_fragments>(dq);
    multiply_columns<dq_rows, dq_fragments, dq_column_warps, block_n / 16, false, block_n, columns_qk>(
        dq, ds_tile, key_tile, dq_part);
    if (deterministic) {
      tile_to_pass_on = tile;
      wait_for_turn(p, seen, place.slice() * (p.forward.heads / gqa_ratio) + place.kv_head, n_tile,
                    here.m_tile, tile);
      block_barrier();
    }
    add_dq(dq, dq_start(p.dq_sums + (long long)tile * dq_tile_floats));
    here = next_place(here, tiles);
    if (stages > 1) stage ^= 1;
  }
  copy_async_wait<0>();
  if (deterministic) {
    block_barrier();
    if (tile_to_pass_on >= 0 && thread_index() == 0) global_end_turn(p.turns + tile_to_pass_on);
  }

  // The place is worked out anew: kept over the loop it would cost registers that the tiles need.
  const KeyPlace mine = recall_key_place(p, deterministic ? block : block_index());
  u16* to_dk = (u16*)p.dk.data + mine.slice() * p.dk.batch_stride + mine.kv_head * p.dk.head_stride +
               mine.first_key * p.dk.row_stride;
  u16* to_dv = (u16*)p.dv.data + mine.slice() * p.dv.batch_stride + mine.kv_head * p.dv.head_stride +
               mine.first_key * p.dv.row_stride;
  store_gradient<dk_rows, dk_fragments, head_dim_qk>(dk, p.forward.scale, to_dk, p.dk.row_stride,
                                                     mine.key + dk_part.first_row * 16, sequence_of(p).keys,
                                                     dk_part.first_column);
  store_gradient<dv_rows, dv_fragments, head_dim_v>(dv, with_dropout ? p.forward.dropout.factor : 1.0f, to_dv,
                                                    p.dv.row_stride, mine.key + dv_part.first_row * 16,
                                                    sequence_of(p).keys, dv_part.first_column);
}
