// What the sm90 family's backward kernels have of their own: orders of the products, consumers that share
// their keys, blocks that share tiles; and defects in them, which the simulator must find.
#include <gtest/gtest.h>

#include "codegen/backward_order.h"
#include "codegen/error.h"
#include "codegen/schedule.h"
#include "tests/support/backward_case.h"
#include "tests/support/backward_grid.h"

namespace tilewright {
namespace {

void run(const std::string& keys, int seqlen_q, int seqlen_kv, uint64_t seed) {
  Runtime runtime(test::simulator_options(seed, "sm_90a"));
  test::run_backward(runtime, {.spec = "{pass: backward, " + keys + "}",
                               .heads_kv = 2,
                               .seqlen_q = seqlen_q,
                               .seqlen_kv = seqlen_kv,
                               .seed = seed});
}

TEST(BackwardHopper, EveryOrderComputesTheSame) {
  uint64_t seed = 0;
  for (const BackwardOrder& order : backward_orders())
    run("head_dim: 64, mask: causal, gqa_ratio: 2, blocks: {family: sm90, m: 64, n: " +
            std::string(order.splits_columns ? "64" : "128") + ", order: " + std::string(order.name) + "}",
        200, 230, seed++ % 4);
}

TEST(BackwardHopper, LengthsAtTheEdges) {
  uint64_t seed = 0;
  for (const char* blocks : {"m: 128, n: 128", "m: 64, n: 128, stages: 1, order: late_in_place",
                             "m: 64, n: 64", "m: 64, n: 128, stages: 3"})
    for (const char* mask : {"none", "causal", "{window: [40, -8]}"})
      for (auto [q, kv] : std::vector<std::pair<int, int>>{{0, 5}, {1, 3}, {64, 128}, {65, 129}, {129, 40}})
        run("head_dim: 32, mask: " + std::string(mask) + ", blocks: {family: sm90, " + blocks + "}", q, kv,
            seed++ % 4);
}

// A panel each, half of the middle one, or nothing but that.
TEST(BackwardHopper, ConsumersShareColumns) {
  uint64_t seed = 0;
  for (const char* dims : {"{qk: 192, v: 40}", "{qk: 72, v: 136}", "{qk: 256, v: 192}"})
    run("head_dim: " + std::string(dims) +
            ", dtype: fp16, softcap: 20, mask: {window: [70, 3]}, blocks: {family: "
            "sm90, n: 64}",
        100, 150, seed++);
}

TEST(BackwardHopper, OrdersAreChecked) {
  const Target& hopper = target_by_name("sm_90a");
  const auto reason = [&](const std::string& keys) {
    try {
      choose_schedule(parse_spec("{pass: backward, " + keys + "}", "test.yaml"), hopper);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(reason("head_dim: 64, blocks: {order: lat}").find("nearest: late"), std::string::npos);
  EXPECT_NE(reason("head_dim: 64, blocks: {family: sm90, order: columns}").find("is for blocks.n 64"),
            std::string::npos);
  EXPECT_NE(reason("head_dim: 64, blocks: {family: sm80, order: late}").find("sm90"), std::string::npos);
  EXPECT_EQ(reason("head_dim: 256, blocks: {family: sm90, order: columns_plain}"), "");
}

TEST(BackwardHopper, OrdersWithoutAWaitAreRefused) {
  EXPECT_THROW(backward_loop({"no_wait", false, "S dP P dS dV dQ dV! dK dQ!"}), Error);
  EXPECT_THROW(backward_loop({"too_early", false, "dP P dS dV!"}), Error);
  EXPECT_THROW(backward_loop({"unknown", false, "S dP P dX"}), Error);
}

}  // namespace
}  // namespace tilewright
