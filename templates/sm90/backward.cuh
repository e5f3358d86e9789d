// The backward kernels: a producer warpgroup that feeds the copy engine and sends dQ away, two consumers that
// compute; and what turns the sums of dQ into dQ.

__device__ __forceinline__ void backward(const HopperBackwardParameters& p, const ExpressionArguments& e) {
  const BackwardLayout layout = {shared_base()};
  const int warpgroup = uniform(thread_index() / 128);
  if (thread_index() == 0) initialize_backward_barriers(layout);
  if (deterministic) {
    if (thread_index() == 0) store_first_key_tile(p, layout);
  }
  block_barrier();
  if (warpgroup == 0) {
    release_registers<producer_registers>();
    const int warp = uniform(thread_index() / 32);
    if (warp == 1 || (deterministic && warp == 2)) {
      if (deterministic) send_dq_in_turns(p, layout, warp - 1);
      if (!deterministic) {
        if (!splits_columns) send_dq(p, layout);
      }
    } else if (thread_index() == 0) {
      produce_backward(p, layout);
    }
  } else {
    take_registers<consumer_registers>();
    consume_backward(p, layout, e, warpgroup - 1);
  }
}

/// A block for each tile of query rows, a warpgroup for each consumer's share of it.
extern "C" __global__ void __launch_bounds__(finish_threads)
    attention_backward_finish(const __grid_constant__ BackwardParameters p) {
  const int tile = block_index(), group = thread_index() / 128, thread = thread_index() % 128;
  if (with_sinks && tile >= p.query_blocks) {
    finish_sinks(p, tile - p.query_blocks);
    return;
  }
  const RowsPlace place = rows_place(p, tile);
  if (packed_layout && place.row >= place.rows) return;
  const float* from = p.dq_sums + (long long)tile * dq_tile_floats + group * 64 * dq_columns + thread * 4;
  float dq[dq_columns / 2];
#pragma unroll
  for (int i = 0; i < dq_columns / 8; ++i) {
    float value[4];
    global_load_16(value, from + i * 512);
#pragma unroll
    for (int j = 0; j < 4; ++j) dq[4 * i + j] = value[j];
  }
  const int row = place.row + (block_m == 128 ? group * 64 : 0) + thread / 32 * 16 + thread % 32 / 4;
  store_gradient<panels_qk>(p.dq, dq, p.forward.scale, place.first_query + row,
                            place.first_query + place.rows, place.head, place.batch,
                            block_m == 128 ? 0 : group * dq_columns, head_dim_qk, group);
}
