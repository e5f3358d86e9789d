// The same grid on a GPU, every case several times: once for the answer, then for equal bits.
#include "runtime/device.h"
#include "tests/support/attention_grid.h"

namespace tilewright {
namespace {

RuntimeOptions gpu_options() {
  RuntimeOptions options;
  options.device.kind = DeviceChoice::Kind::cuda;
  options.disk_cache = false;
  return options;
}

/// On Hopper the default family is sm90; the same grid runs on the family that every GPU has.
std::vector<test::GridGroup> sm80_grid() {
  std::vector<test::GridGroup> grid = test::attention_grid();
  for (test::GridGroup& group : grid) {
    for (test::AttentionCase& attention : group.cases)
      if (attention.spec.find("blocks:") == std::string::npos)
        attention.spec.insert(attention.spec.size() - 1, ", blocks: {family: sm80}");
  }
  return grid;
}

class GpuForward : public testing::TestWithParam<test::GridGroup> {
 protected:
  void SetUp() override {
    if (std::string why; !cuda_device_available(&why)) GTEST_SKIP() << "no GPU: " << why;
  }
};

TEST_P(GpuForward, MatchesReference) {
  Runtime runtime(gpu_options());
  for (const test::AttentionCase& attention : GetParam().cases) {
    if (attention.spec.find("family: sm90") != std::string::npos && !runtime.target().wgmma) continue;
    const std::string first = test::run_case(runtime, attention).out.live_bytes();
    EXPECT_EQ(first, test::run_case(runtime, attention).out.live_bytes())
        << attention.spec << ": two launches differ";
  }
}

const auto group_name = [](const testing::TestParamInfo<test::GridGroup>& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Default, GpuForward, testing::ValuesIn(test::attention_grid()), group_name);
INSTANTIATE_TEST_SUITE_P(Sm80, GpuForward, testing::ValuesIn(sm80_grid()), group_name);
INSTANTIATE_TEST_SUITE_P(Sm90, GpuForward,
                         testing::Values(test::hopper_schedules(), test::hopper_clusters(),
                                         test::hopper_pack_groups()),
                         group_name);

TEST(GpuForwardLarge, ManyTilesAndBatches) {
  if (std::string why; !cuda_device_available(&why)) GTEST_SKIP() << "no GPU: " << why;
  Runtime runtime(gpu_options());
  for (const char* spec :
       {"{head_dim: 128, lse: true, mask: causal, gqa_ratio: 4}", "{head_dim: 64, lse: true}",
        "{head_dim: 256, lse: true, mask: {window: [200, 0]}, softcap: 50}",
        "{head_dim: 128, lse: true, mask: causal, gqa_ratio: 4, blocks: {family: sm80}}"})
    test::run_case(runtime, {.spec = spec,
                             .batch = 3,
                             .heads_kv = 2,
                             .seqlen_q = 777,
                             .seqlen_kv = 1021,
                             .data = test::Data::outliers});
}

// Case E5: blocks of one launch beyond 65535, the first and the last head right.
TEST(GpuForwardLarge, MoreHeadsThanGridRows) {
  if (std::string why; !cuda_device_available(&why)) GTEST_SKIP() << "no GPU: " << why;
  Runtime runtime(gpu_options());
  test::run_case(runtime,
                 {.spec = "{head_dim: 8, lse: true}", .heads_kv = 70000, .seqlen_q = 1, .seqlen_kv = 3});
}

}  // namespace
}  // namespace tilewright
