// The sm90 family's kernels on the simulator of a Hopper GPU: the grid of every family, and its own
// schedules.
#include "tests/support/attention_grid.h"

namespace tilewright {
namespace {

class ForwardHopper : public testing::TestWithParam<test::GridGroup> {};

// Odd launches: seed 1, with which a block computes one tile. Else blocks share tiles.
TEST_P(ForwardHopper, MatchesReference) {
  Runtime early(test::simulator_options(0, "sm_90a")), late(test::simulator_options(1, "sm_90a")),
      mixed(test::simulator_options(7, "sm_90a"));
  int turn = 0;
  for (const test::AttentionCase& attention : GetParam().cases) {
    Runtime* runtimes[] = {&early, &late, &mixed};
    test::run_case(*runtimes[turn++ % 3], attention);
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, ForwardHopper, testing::ValuesIn(test::attention_grid()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Own, ForwardHopper,
                         testing::Values(test::hopper_schedules(), test::hopper_clusters(),
                                         test::hopper_pack_groups()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tilewright
