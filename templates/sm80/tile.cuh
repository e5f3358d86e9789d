// Tiles in shared memory: rows of 16-byte chunks, swizzled. (Rows padded to an odd number of chunks need no
// swizzle, but cp.async then fetches 1.54 times the sectors from L2: a line whose copy straddles two 128-byte
// rows is fetched twice.)

/// Columns are padded with zeros to whole 16x16 fragments.
constexpr int columns_qk = round_up(head_dim_qk, 16);

constexpr int columns_v = round_up(head_dim_v, 16);

/// Bytes of a row.
__device__ __forceinline__ constexpr int row_bytes(int columns) {
  return columns * 2;
}

/// Chunks that trade places: the largest power of two that divides a row, at most the 8 that span all banks.
__device__ __forceinline__ constexpr int swizzle_group(int columns) {
  return minimum(columns / 8 & -(columns / 8), 8);
}

/// Chunk c of a row lies at chunk c ^ swizzle(row): any eight rows that ldmatrix reads at once then lie in
/// different banks, whatever the width. Equal for rows that differ by a multiple of 8.
__device__ __forceinline__ constexpr int swizzle(int columns, int row) {
  return row / (8 / swizzle_group(columns)) % swizzle_group(columns);
}

/// Address of a chunk further on in the row: `address` is that of chunk 0 or 1, `chunk` even.
__device__ __forceinline__ u32 advance_chunks(u32 address, int columns, int chunk) {
  const int group = swizzle_group(columns);
  return (address ^ chunk % group * 16) + chunk / group * group * 16;
}

constexpr int query_tile_bytes = block_m * row_bytes(columns_qk);

constexpr int key_tile_bytes = block_n * row_bytes(columns_qk);

constexpr int value_tile_bytes = block_n * row_bytes(columns_v);

/// Of the backward pass: Q and dO; P or dS.
constexpr int query_stage_bytes = query_tile_bytes + block_m * row_bytes(columns_v);

constexpr int score_tile_bytes = block_m * row_bytes(block_n);

/// The largest power of two that divides a row's count of chunks, at most 16: so many neighbouring threads
/// share a row.
__device__ __forceinline__ constexpr int threads_per_row(int chunks) {
  return minimum(chunks & -chunks, 16);
}

/// Where one thread's share of a tile starts: some columns of some rows.
template <int head_dim>
__device__ __forceinline__ const u16* tile_source(const u16* first_row, long long row_stride) {
  constexpr int lanes = threads_per_row(round_up(head_dim, 16) / 8);
  return first_row + thread_index() / lanes * row_stride + thread_index() % lanes * 8;
}

/// Starts copying `rows` rows of one head to shared memory. `source` is this thread's tile_source;
/// `row_stride` counts elements. Columns from head_dim on become zero, and with `partial` rows from
/// `live_rows` on. One pointer steps through the rows: a pointer for each would live in registers over the
/// whole main loop.
template <int rows, int head_dim, bool partial>
__device__ __forceinline__ void load_tile(u32 tile, const u16* source, long long row_stride, int live_rows) {
  constexpr int columns = round_up(head_dim, 16), chunks = columns / 8, lanes = threads_per_row(chunks);
  constexpr int rows_at_once = threads / lanes;
  const int row = thread_index() / lanes, chunk = thread_index() % lanes;
#pragma unroll
  for (int i = 0; i < rows; i += rows_at_once) {
    if (rows % rows_at_once == 0 || i + row < rows) {
      const u32 to = tile + (i + row) * row_bytes(columns) + (chunk ^ swizzle(columns, i + row)) * 16;
      const int bytes = !partial || i + row < live_rows ? 16 : 0;
#pragma unroll
      for (int c = 0; c < chunks; c += lanes) {
        const bool padding = columns != head_dim && c + lanes == chunks && chunk == lanes - 1;
        copy_async_16(to + c * 16, source + c * 8, padding ? 0 : bytes);
      }
    }
    source += rows_at_once * row_stride;
  }
}
