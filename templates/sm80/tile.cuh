// Tiles in shared memory: rows of 16-byte chunks, the row pitch an odd number of chunks, so that the eight rows that
// ldmatrix reads at once lie in different banks with no swizzle, and every address is one base plus a constant.

/// Columns are padded with zeros to whole 16x16 fragments.
constexpr int columns_qk = round_up(head_dim_qk, 16);

constexpr int columns_v = round_up(head_dim_v, 16);

/// Bytes from one row of a tile to the next.
__device__ __forceinline__ constexpr int row_pitch(int columns) { return (columns / 8 | 1) * 16; }

constexpr int query_tile_bytes = block_m * row_pitch(columns_qk);

constexpr int key_tile_bytes = block_n * row_pitch(columns_qk);

constexpr int value_tile_bytes = block_n * row_pitch(columns_v);

/// Starts copying `rows` rows of one head to shared memory; rows from `live_rows` on and columns from head_dim on
/// become zero. `source` points at the first row; `row_stride` counts elements.
template <int rows, int head_dim>
__device__ __forceinline__ void load_tile(u32 tile, const u16* source, long long row_stride, int live_rows) {
  constexpr int columns = round_up(head_dim, 16);
  constexpr int chunks = columns / 8;
  const int thread = thread_index();
#pragma unroll
  for (int i = 0; i < (rows * chunks + threads - 1) / threads; ++i) {
    const int index = i * threads + thread;
    const int row = index / chunks, chunk = index % chunks;
    if (rows * chunks % threads != 0 && row >= rows) break;
    const bool live = row < live_rows && (columns == head_dim || chunk * 8 < head_dim);
    const u16* from = live ? source + row * row_stride + chunk * 8 : source;
    copy_async_16(tile + row * row_pitch(columns) + chunk * 16, from, live ? 16 : 0);
  }
}
