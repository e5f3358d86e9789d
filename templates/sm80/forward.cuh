// The forward kernel: one block computes one tile of query rows of one head, from the last visible key to the first.

/// Walks down the tiles of K and V. Only the first tile loaded, the last one of the sequence, can be partial.
struct KeyValueSource {
  const u16* k;
  const u16* v;
  int tiles_left;  // not yet loaded
  int live_keys;   // of the next tile
};

template <bool partial>
__device__ __forceinline__ void load_keys(const ForwardParameters& p, KeyValueSource& source, u32 tile) {
  if (source.tiles_left > 0) load_tile<block_n, head_dim_qk, partial>(tile, source.k, p.k.row_stride, source.live_keys);
  source.k -= block_n * p.k.row_stride;
}

template <bool partial>
__device__ __forceinline__ void load_values(const ForwardParameters& p, KeyValueSource& source, u32 tile) {
  if (source.tiles_left > 0) load_tile<block_n, head_dim_v, partial>(tile, source.v, p.v.row_stride, source.live_keys);
  source.v -= block_n * p.v.row_stride;
  source.live_keys = block_n;
  --source.tiles_left;
}

extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm)
attention_forward(const __grid_constant__ ForwardParameters p) {
  const int block = block_index();
  const int head_index = block / p.m_tiles, m_tile = block % p.m_tiles;
  const int batch = head_index / p.heads, head = head_index % p.heads, kv_head = head / gqa_ratio;
  // Under a causal mask the last rows have the most keys: they start first, so that the short tiles fill the gaps at the end.
  const int row = (limited_right ? p.m_tiles - 1 - m_tile : m_tile) * block_m;
  const u16* q = (const u16*)p.q.data + batch * p.q.batch_stride + head * p.q.head_stride + row * p.q.row_stride;
  const u16* k = (const u16*)p.k.data + batch * p.k.batch_stride + kv_head * p.k.head_stride;
  const u16* v = (const u16*)p.v.data + batch * p.v.batch_stride + kv_head * p.v.head_stride;

  const KeyTiles tiles = key_tiles(p, row);
  const int last_key = (tiles.end - 1) * block_n;
  KeyValueSource source = {tile_source<head_dim_qk>(k + last_key * p.k.row_stride, p.k.row_stride),
                           tile_source<head_dim_v>(v + last_key * p.v.row_stride, p.v.row_stride),
                           tiles.end - tiles.begin, p.seqlen_kv - last_key};
  const u32 query_tile = shared_base();
  const u32 ring = query_tile + query_tile_bytes;
  constexpr int stage_bytes = key_tile_bytes + value_tile_bytes;

  // Groups of copies are closed also when there is no tile left to load: their count tells what has landed.
  load_tile<block_m, head_dim_qk, true>(query_tile, tile_source<head_dim_qk>(q, p.q.row_stride), p.q.row_stride, p.seqlen_q - row);
  load_keys<true>(p, source, ring);
  if (stages > 1) {
    load_values<true>(p, source, ring + key_tile_bytes);
    copy_async_commit();
#pragma unroll
    for (int s = 1; s < stages - 1; ++s) {
      load_keys<false>(p, source, ring + s * stage_bytes);
      load_values<false>(p, source, ring + s * stage_bytes + key_tile_bytes);
      copy_async_commit();
    }
  } else {
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
  const u32 query = query_address(query_tile);
  u32 held[query_fragments][m_fragments][4];
  if (query_in_registers) {
    copy_async_wait<groups_in_flight>();  // Q travels in the first group
    block_barrier();
#pragma unroll
    for (int i = 0; i < query_fragments; ++i) load_query_fragment(held[i], query, i);
  }
  const int warp_row = row + thread_index() / 32 * (m_fragments * 16);
  const float scale_log2 = with_softcap ? log2_e : p.scale_log2;

  int stage = 0;
#pragma unroll 1
  for (int j = tiles.end - 1; j >= tiles.begin; --j) {
    const u32 tile = ring + stage * stage_bytes;
    copy_async_wait<groups_in_flight>();
    block_barrier();  // tile j is there for all, and all have left tile j + 1, whose place the next load takes
    if (stages > 1) {
      const u32 free_stage = ring + (stage == 0 ? stages - 1 : stage - 1) * stage_bytes;
      load_keys<false>(p, source, free_stage);
      load_values<false>(p, source, free_stage + key_tile_bytes);
    } else {
      load_values<true>(p, source, tile + key_tile_bytes);
    }
    copy_async_commit();
    float scores[m_fragments][n_fragments][4];
    compute_scores(scores, held, query, key_address(tile));
    if (stages == 1) {
      copy_async_wait<0>();
      block_barrier();  // V is there for all, and all have left K
      load_keys<false>(p, source, tile);
      copy_async_commit();
    }
    if (with_softcap) cap_scores(scores, p.scale);
    if (j < tiles.full_begin || j >= tiles.full_end) mask_scores(scores, p, warp_row, j * block_n);
    update_softmax(scores, state, output, scale_log2);
    accumulate_output(output, scores, value_address(tile + key_tile_bytes));
    stage = stage == stages - 1 ? 0 : stage + 1;
  }
  copy_async_wait<0>();

  u16* out = (u16*)p.out.data + batch * p.out.batch_stride + head * p.out.head_stride;
  float* lse = p.lse + (long long)head_index * p.seqlen_q;
  store_output(p, output, state, out, p.lse ? lse : (float*)0, warp_row);
}
