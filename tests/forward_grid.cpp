// Every generated forward kernel of the grid, on the simulator, with asynchronous copies early, late and in
// between.
#include "tests/support/attention_grid.h"

namespace tilewright {
namespace {

class ForwardGrid : public testing::TestWithParam<test::GridGroup> {};

TEST_P(ForwardGrid, MatchesReference) {
  Runtime early(test::simulator_options(0)), late(test::simulator_options(1)),
      mixed(test::simulator_options(7));
  int turn = 0;
  for (const test::AttentionCase& attention : GetParam().cases) {
    Runtime* runtimes[] = {&early, &late, &mixed};
    test::run_case(*runtimes[turn++ % 3], attention);
  }
}

INSTANTIATE_TEST_SUITE_P(Simulator, ForwardGrid, testing::ValuesIn(test::attention_grid()),
                         [](const auto& info) { return info.param.name; });

// The tightest schedule tests: the same case under many orders of events.
TEST(ForwardSeeds, EveryRingDepth) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Runtime runtime(test::simulator_options(seed));
    for (int stages : {1, 2, 3})
      test::run_case(
          runtime,
          {.spec = "{head_dim: 32, lse: true, mask: causal, blocks: {m: 32, n: 16, warps: 2, stages: " +
                   std::to_string(stages) + "}}",
           .seqlen_q = 40,
           .seqlen_kv = 90,
           .seed = seed});
  }
}

}  // namespace
}  // namespace tilewright
