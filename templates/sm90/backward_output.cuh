// Gradients from accumulators to global memory.

/// `columns` columns, from `column` on, of rows `row` and 8 below of a tensor with `all_columns`: the
/// registers of a 64-row accumulator from `first` on, scaled.
template <int first, int columns, int count>
__device__ __forceinline__ void store_columns_of(const TensorParameters& tensor, float (&values)[count],
                                                 float scale, int row, int rows, int head, int batch,
                                                 int column, int all_columns) {
  const int quarter = thread_index() % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int my_row = row + half * 8;
    u16* to = (u16*)tensor.data + batch * tensor.batch_stride + head * tensor.head_stride +
              my_row * tensor.row_stride + column + quarter * 8;
#pragma unroll
    for (int group = 0; group < (columns + 31) / 32; ++group) {
      u32 word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int chunk = group * 4 + i;
        const int at = chunk < columns / 8 ? first + chunk * 4 + half * 2 : 0;
        word[i] = chunk < columns / 8 ? pack_element(values[at] * scale, values[at + 1] * scale) : 0u;
      }
      transpose_quad(word);
      if (my_row < rows && column + group * 32 + quarter * 8 < all_columns &&
          (columns % 32 == 0 || group * 32 + quarter * 8 < columns))
        global_store_16(to + group * 32, word[0], word[1], word[2], word[3]);
    }
  }
}

/// Where consumers share the columns of a matrix of panels each has whole panels, from this column on, and
/// half of the middle one if their number is odd.
__device__ __forceinline__ constexpr int whole_column(int panels, int group) {
  return group * (panels - panels / 2) * 64;
}

__device__ __forceinline__ constexpr int middle_column(int panels, int group) {
  return panels / 2 * 64 + group * 32;
}

/// All of a consumer's accumulator; `column` counts if the consumers do not share the columns so.
template <int panels, int count>
__device__ __forceinline__ void store_gradient(const TensorParameters& tensor, float (&values)[count],
                                               float scale, int row, int rows, int head, int batch,
                                               int column, int all_columns, int group) {
  if (!splits_columns) {
    store_columns_of<0, count * 2>(tensor, values, scale, row, rows, head, batch, column, all_columns);
    return;
  }
  if constexpr (panels / 2 > 0)
    store_columns_of<0, panels / 2 * 64>(tensor, values, scale, row, rows, head, batch,
                                         whole_column(panels, group), all_columns);
  if constexpr (panels % 2 > 0)
    store_columns_of<panels / 2 * 32, panels % 2 * 32>(tensor, values, scale, row, rows, head, batch,
                                                       middle_column(panels, group), all_columns);
}
