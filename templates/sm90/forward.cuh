// The forward kernel: a producer warp that feeds the copy engine, one to three consumer warpgroups that
// compute.

extern "C" __global__ void __launch_bounds__(threads, 1)
    attention_forward(const __grid_constant__ HopperForwardParameters p) {
  const Layout layout = {shared_base()};
  const int warpgroup = uniform(thread_index() / 128);
  if (thread_index() == 0) initialize_barriers(layout);
  block_barrier();
  // A block with one consumer is launched with all the registers that it can use.
  if (warpgroup == 0) {
    if (consumers > 1) release_registers<producer_registers>();
    if (thread_index() == 0) produce(p, layout);
  } else {
    if (consumers > 1) take_registers<consumer_registers>();
    consume(p, layout, warpgroup - 1);
  }
}
