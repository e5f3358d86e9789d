// Matrix products of the backward kernel: operands from shared memory, as they lie or transposed on the way.
// Each warp computes a part of the result in fragments of 16 x 16.

/// Steps between reading an operand fragment and the product that takes it.
constexpr int lookahead = 2;

/// Lane addresses for ldmatrix in a tile of `columns`. Along rows: lane i points at row i % 16, chunk i / 16:
/// A as it lies, B transposed on the way. Across: row i % 8 + i / 16 * 8, chunk i / 8 % 2: B as it lies, A
/// transposed.
template <int columns>
__device__ __forceinline__ u32 address_along(u32 tile) {
  const int lane = thread_index() % 32, row = lane % 16;
  return tile + row * row_bytes(columns) + (lane / 16 ^ swizzle(columns, row)) * 16;
}

template <int columns>
__device__ __forceinline__ u32 address_across(u32 tile) {
  const int lane = thread_index() % 32, row = lane % 8 + lane / 16 * 8;
  return tile + row * row_bytes(columns) + (lane / 8 % 2 ^ swizzle(columns, row)) * 16;
}

__device__ __forceinline__ constexpr bool is_power_of_two(int value) {
  return (value & (value - 1)) == 0;
}

/// A warp steps over `count` fragments of columns from `first` on, a multiple of count. Where count is a
/// power of two its start can be worked into the address once: no later step then carries into it.
template <int columns, int count>
__device__ __forceinline__ u32 start_at_fragment(u32 address, int first) {
  return is_power_of_two(count) ? advance_chunks(address, columns, first * 2) : address;
}

/// Address of the fragment `column` further, `row` fragments down.
template <int columns, int count>
__device__ __forceinline__ u32 fragment_address(u32 start, int first, int row, int column) {
  return advance_chunks(start, columns, (is_power_of_two(count) ? column : first + column) * 2) +
         row * 16 * row_bytes(columns);
}

/// result += A * B transposed: rows of A are rows of the result, rows of B its columns; both lie with their
/// `columns` along the sum. `a` and `b` are the warp's first rows. The first product of a sum overwrites.
template <int rows, int fragments, int columns>
__device__ __forceinline__ void multiply_rows(float (&result)[rows][2 * fragments][4], u32 a, u32 b) {
  constexpr int steps = columns / 16 * fragments, slots = lookahead + 1;
  const u32 a_lane = address_along<columns>(a), b_lane = address_across<columns>(b);
  u32 x[rows][4], y[slots][4];
#pragma unroll
  for (int i = 0; i < minimum(lookahead, steps); ++i)
    load_matrix_x4(y[i % slots], fragment_address<columns, 1>(b_lane, 0, i % fragments, i / fragments));
#pragma unroll
  for (int i = 0; i < steps; ++i) {
    const int k = i / fragments, n = i % fragments, ahead = i + lookahead;
    if (n == 0) {  // not ahead: the registers are full
#pragma unroll
      for (int m = 0; m < rows; ++m) load_matrix_x4(x[m], fragment_address<columns, 1>(a_lane, 0, m, k));
    }
    if (ahead < steps)
      load_matrix_x4(y[ahead % slots],
                     fragment_address<columns, 1>(b_lane, 0, ahead % fragments, ahead / fragments));
    const u32(&keys)[4] = y[i % slots];
#pragma unroll
    for (int m = 0; m < rows; ++m) {
      if (k == 0) {
        matrix_multiply_first(result[m][2 * n], x[m], keys[0], keys[1]);
        matrix_multiply_first(result[m][2 * n + 1], x[m], keys[2], keys[3]);
      } else {
        matrix_multiply(result[m][2 * n], x[m], keys[0], keys[1]);
        matrix_multiply(result[m][2 * n + 1], x[m], keys[2], keys[3]);
      }
    }
  }
}

/// Which part of a result a warp computes: fragments of rows from first_row on, of columns from first_column
/// on.
struct WarpPart {
  int first_row, first_column;
};

template <int row_warps, int column_warps, int rows, int fragments>
__device__ __forceinline__ WarpPart warp_part() {
  const int warp = thread_index() / 32;
  return {warp / column_warps % row_warps * rows, warp % column_warps * fragments};
}

/// result += A * B for B [sum][columns_b]; A lies as [rows][columns_a], or as [sum][columns_a] with
/// `transposed`. `sum` is in fragments. Where the columns do not divide evenly among the warps, the last ones
/// have fewer.
template <int rows, int fragments, int column_warps, int sum, bool transposed, int columns_a, int columns_b>
__device__ __forceinline__ void multiply_columns(float (&result)[rows][2 * fragments][4], u32 a, u32 b,
                                                 WarpPart part) {
  constexpr int steps = sum * fragments, slots = lookahead + 1;
  constexpr bool even = column_warps * fragments * 16 == columns_b;
  const int live = even ? fragments : minimum(fragments, columns_b / 16 - part.first_column);
  const u32 a_lane = transposed
                         ? start_at_fragment<columns_a, rows>(address_across<columns_a>(a), part.first_row)
                         : address_along<columns_a>(a) + part.first_row * 16 * row_bytes(columns_a);
  const u32 b_lane = start_at_fragment<columns_b, fragments>(address_along<columns_b>(b), part.first_column);
  u32 x[2][rows][4], y[slots][4];
  const auto load_a = [&](u32(&to)[rows][4], int k) {
#pragma unroll
    for (int m = 0; m < rows; ++m) {
      if (transposed)
        load_matrix_x4_transposed(to[m], fragment_address<columns_a, rows>(a_lane, part.first_row, k, m));
      else
        load_matrix_x4(to[m], fragment_address<columns_a, 1>(a_lane, 0, m, k));
    }
  };
  const auto load_b = [&](u32(&to)[4], int k, int n) {
    if (even || n < live)
      load_matrix_x4_transposed(to, fragment_address<columns_b, fragments>(b_lane, part.first_column, k, n));
  };
  load_a(x[0], 0);
#pragma unroll
  for (int i = 0; i < minimum(lookahead, steps); ++i) load_b(y[i % slots], i / fragments, i % fragments);
#pragma unroll
  for (int i = 0; i < steps; ++i) {
    const int k = i / fragments, n = i % fragments, ahead = i + lookahead;
    if (n == 0 && k + 1 < sum) load_a(x[(k + 1) % 2], k + 1);
    if (ahead < steps) load_b(y[ahead % slots], ahead / fragments, ahead % fragments);
    const u32(&values)[4] = y[i % slots];
    if (even || n < live) {
#pragma unroll
      for (int m = 0; m < rows; ++m) {
        matrix_multiply(result[m][2 * n], x[k % 2][m], values[0], values[1]);
        matrix_multiply(result[m][2 * n + 1], x[k % 2][m], values[2], values[3]);
      }
    }
  }
}
