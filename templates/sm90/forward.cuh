// The forward kernel: a producer warp that feeds the copy engine, one to three consumer warpgroups that
// compute.

__device__ __forceinline__ void forward(const HopperForwardParameters& p, const ExpressionArguments& e) {
  const Layout layout = {shared_base()};
  const int warpgroup = uniform(thread_index() / 128);
  if (packed_layout && thread_index() == 0) initialize_last_values(layout);
  if (thread_index() == 0) initialize_barriers(layout);
  block_barrier();
  if (clustered) cluster_barrier();  // before another block reaches the barriers
  wait_for_previous_launch();
  // A block with one consumer is launched with all the registers that it can use.
  if (warpgroup == 0) {
    if (consumers > 1) release_registers<producer_registers>();
    if (thread_index() < (producer_is_warp ? 32 : 1)) {
      produce(p, e, layout);
      let_next_launch_start();  // while the consumers are still at the last tile
    }
  } else {
    if (consumers > 1) take_registers<consumer_registers>();
    consume(p, e, layout, warpgroup - 1);
  }
  if (clustered) cluster_barrier();  // a block stays until the others have sent it all that they will
}
