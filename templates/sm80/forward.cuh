// The forward kernel: one block computes one tile of query rows of one head, from the last visible key to the first.

/// Starts loading tile `j` of K and V into its stage and closes the group of copies, also when there is no such tile:
/// the count of groups in flight then stays the same for every iteration.
__device__ __forceinline__ void load_keys_and_values(const ForwardParameters& p, u32 stage, const u16* k, const u16* v, int j,
                                                     int first) {
  if (j >= first) {
    const long long row = (long long)j * block_n;
    const int live_rows = p.seqlen_kv - j * block_n;
    load_tile<block_n, head_dim_qk>(stage, k + row * p.k.row_stride, p.k.row_stride, live_rows);
    load_tile<block_n, head_dim_v>(stage + key_tile_bytes, v + row * p.v.row_stride, p.v.row_stride, live_rows);
  }
  copy_async_commit();
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
  const u32 query_tile = shared_base();
  const u32 ring = query_tile + query_tile_bytes;
  constexpr int stage_bytes = key_tile_bytes + value_tile_bytes;

  load_tile<block_m, head_dim_qk>(query_tile, q, p.q.row_stride, p.seqlen_q - row);
#pragma unroll
  for (int s = 0; s < stages - 1; ++s) load_keys_and_values(p, ring + s * stage_bytes, k, v, tiles.end - 1 - s, tiles.begin);

  float output[m_fragments][columns_v / 8][4];
#pragma unroll
  for (int m = 0; m < m_fragments; ++m)
#pragma unroll
    for (int n = 0; n < columns_v / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) output[m][n][e] = 0.0f;
  SoftmaxState state;
  start_softmax(state);

  const u32 query = query_address(query_tile);
  u32 held[query_fragments][m_fragments][4];
  if (query_in_registers) {
    copy_async_wait<stages - 2>();  // Q travels in the first group
    block_barrier();
#pragma unroll
    for (int i = 0; i < query_fragments; ++i) load_query_fragment(held[i], query, i);
  }
  const int warp_row = row + thread_index() / 32 * (m_fragments * 16);
  const float scale_log2 = with_softcap ? log2_e : p.scale_log2;

  int stage = 0;
#pragma unroll 1
  for (int j = tiles.end - 1; j >= tiles.begin; --j) {
    copy_async_wait<stages - 2>();
    block_barrier();  // tile j is there for all, and all have left tile j + 1, whose stage the next load overwrites
    const int free_stage = stage == 0 ? stages - 1 : stage - 1;
    load_keys_and_values(p, ring + free_stage * stage_bytes, k, v, j - (stages - 1), tiles.begin);
    const u32 tile = ring + stage * stage_bytes;
    float scores[m_fragments][n_fragments][4];
    compute_scores(scores, held, query, key_address(tile));
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
