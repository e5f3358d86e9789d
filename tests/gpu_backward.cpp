// The backward pass's grid on a GPU: the default family, and the one that every GPU has.
#include "runtime/device.h"
#include "tests/support/backward_grid.h"

namespace tilewright {
namespace {

RuntimeOptions gpu_options() {
  RuntimeOptions options;
  options.device.kind = DeviceChoice::Kind::cuda;
  options.disk_cache = false;
  return options;
}

std::vector<test::GridGroup> sm80_grid() {
  std::vector<test::GridGroup> grid = test::backward_grid();
  for (test::GridGroup& group : grid) {
    for (test::AttentionCase& attention : group.cases)
      if (attention.spec.find("blocks:") == std::string::npos)
        attention.spec.insert(attention.spec.size() - 1, ", blocks: {family: sm80}");
  }
  grid.push_back(test::backward_schedules());
  return grid;
}

class GpuBackward : public testing::TestWithParam<test::GridGroup> {
 protected:
  void SetUp() override {
    if (std::string why; !cuda_device_available(&why)) GTEST_SKIP() << "no GPU: " << why;
  }
};

TEST_P(GpuBackward, MatchesReference) {
  Runtime runtime(gpu_options());
  for (const test::AttentionCase& attention : GetParam().cases) test::run_backward(runtime, attention);
}

const auto group_name = [](const testing::TestParamInfo<test::GridGroup>& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Default, GpuBackward, testing::ValuesIn(test::backward_grid()), group_name);
INSTANTIATE_TEST_SUITE_P(Sm80, GpuBackward, testing::ValuesIn(sm80_grid()), group_name);

TEST(GpuBackwardLarge, ManyTilesAndBatches) {
  if (std::string why; !cuda_device_available(&why)) GTEST_SKIP() << "no GPU: " << why;
  Runtime runtime(gpu_options());
  for (const char* keys : {"head_dim: 128, mask: causal, gqa_ratio: 4", "head_dim: 64, lse: true",
                           "head_dim: 256, mask: {window: [200, 0]}, softcap: 50",
                           "head_dim: 128, mask: causal, gqa_ratio: 4, blocks: {family: sm80}"})
    test::run_backward(runtime, {.spec = std::string("{pass: backward, ") + keys + "}",
                                 .batch = 3,
                                 .heads_kv = 2,
                                 .seqlen_q = 777,
                                 .seqlen_kv = 1021,
                                 .data = test::Data::outliers});
}

// Cases G2 and G3: a thousand launches, the same bits.
TEST(GpuBackwardDeterministic, SameBitsEveryTime) {
  if (std::string why; !cuda_device_available(&why)) GTEST_SKIP() << "no GPU: " << why;
  Runtime runtime(gpu_options());
  for (const char* keys :
       {"head_dim: 64, mask: causal, gqa_ratio: 2", "head_dim: 64, mask: {window: [24, 0]}, gqa_ratio: 8",
        "head_dim: 128", "head_dim: 128, mask: causal, blocks: {family: sm80}"}) {
    const test::AttentionCase attention = {
        .spec = std::string("{pass: backward, deterministic: true, ") + keys + "}",
        .batch = 2,
        .heads_kv = 2,
        .seqlen_q = 400,
        .seqlen_kv = 400};
    test::run_backward(runtime, attention, true, 1000);
  }
}

}  // namespace
}  // namespace tilewright
