// The gradients on their way out: dK and dV straight from registers, dQ by sums in the workspace.

/// Stores a warp's part of a gradient in fragments of 16 x 16, times `factor`. `to` points at the head's
/// first row.
template <int rows, int fragments, int head_dim>
__device__ __forceinline__ void store_gradient(const float (&gradient)[rows][2 * fragments][4], float factor,
                                               u16* to, long long row_stride, int first_row, int row_count,
                                               int first_fragment) {
  const int lane = thread_index() % 32;
#pragma unroll
  for (int m = 0; m < rows; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + m * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int group = 0; group < (fragments + 1) / 2; ++group) {
        u32 word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int n = group * 4 + i < 2 * fragments ? group * 4 + i : 0;
          word[i] = pack_element(gradient[m][n][half * 2] * factor, gradient[m][n][half * 2 + 1] * factor);
        }
        transpose_quad(word);
        const int chunk = group * 4 + lane % 4, column = first_fragment * 16 + chunk * 8;
        if (row < row_count && chunk < 2 * fragments && column < head_dim)
          global_store_16(to + row * row_stride + column, word[0], word[1], word[2], word[3]);
      }
    }
}

/// A thread's values of dQ lie in the order of its registers, so that the lanes of a warp touch neighbours:
/// one by one, or four by four where the GPU adds four at once.
/// Counted from dq_start. (Where the thread's share is added decides whether ptxas spills: sm_80 wants it in
/// the pointer, sm_90a in the place.)
__device__ __forceinline__ int dq_place(int index) {
  return wide_sums ? (index / 4 * threads + thread_index()) * 4 + index % 4 : index * threads;
}

__device__ __forceinline__ float* dq_start(float* sums) {
  return wide_sums ? sums : sums + thread_index();
}

/// Adds a part of dQ to the sums of its tile of query rows, from dq_start on.
__device__ __forceinline__ void add_dq(const float (&dq)[dq_rows][2 * dq_fragments][4], float* sums) {
#pragma unroll
  for (int m = 0; m < dq_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * dq_fragments; ++n) {
      const int index = (m * 2 * dq_fragments + n) * 4;
      const float(&v)[4] = dq[m][n];
      if (wide_sums) {
        global_sum_4(sums + dq_place(index), v[0], v[1], v[2], v[3]);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) global_sum(sums + dq_place(index + e), v[e]);
      }
    }
}

/// After the backward kernel: dQ of one tile of query rows.
extern "C" __global__ void __launch_bounds__(threads)
    attention_backward_finish(const __grid_constant__ BackwardParameters p) {
  const int tile = block_index();
  if (with_sinks && tile >= p.query_blocks) {
    finish_sinks(p, tile - p.query_blocks);
    return;
  }
  const RowsPlace place = rows_place(p, tile);
  if (packed_layout && place.row >= place.rows) return;
  const float* sums = dq_start(p.dq_sums + (long long)tile * dq_tile_floats);
  float dq[dq_rows][2 * dq_fragments][4];
#pragma unroll
  for (int m = 0; m < dq_rows; ++m)
#pragma unroll
    for (int n = 0; n < 2 * dq_fragments; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        dq[m][n][e] = global_load_float(sums + dq_place((m * 2 * dq_fragments + n) * 4 + e));
  const WarpPart part = warp_part<dq_row_warps, dq_column_warps, dq_rows, dq_fragments>();
  u16* to = (u16*)p.dq.data + place.batch * p.dq.batch_stride + place.head * p.dq.head_stride +
            place.first_query * p.dq.row_stride;
  store_gradient<dq_rows, dq_fragments, head_dim_qk>(dq, p.forward.scale, to, p.dq.row_stride,
                                                     place.row + part.first_row * 16, place.rows,
                                                     part.first_column);
}
