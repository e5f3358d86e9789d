// The grid of the backward pass on the simulator, for a target of each family that has its kernels.
#include "tests/support/backward_grid.h"

namespace tilewright {
namespace {

using test::GridGroup;

class BackwardGrid : public testing::TestWithParam<std::tuple<std::string, GridGroup>> {};

TEST_P(BackwardGrid, MatchesFp64) {
  const auto& [target, group] = GetParam();
  uint64_t seed = 0;
  for (test::AttentionCase attention : group.cases) {
    // Copies that land at once, late, and in between.
    Runtime runtime(test::simulator_options(seed++ % 4, target));
    attention.seed = seed;
    test::run_backward(runtime, attention);
    if (HasFatalFailure()) return;
  }
}

TEST(BackwardSchedules, Sm80) {
  uint64_t seed = 0;
  for (test::AttentionCase attention : test::backward_schedules().cases) {
    Runtime runtime(test::simulator_options(seed++ % 4, "sm_80"));
    attention.seed = seed;
    test::run_backward(runtime, attention);
  }
}

INSTANTIATE_TEST_SUITE_P(Simulator, BackwardGrid,
                         testing::Combine(testing::ValuesIn(test::backward_targets()),
                                          testing::ValuesIn(test::backward_grid())),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace tilewright
