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

class GpuForward : public testing::TestWithParam<test::GridGroup> {
 protected:
  void SetUp() override {
    if (std::string why; !cuda_device_available(&why)) GTEST_SKIP() << "no GPU: " << why;
  }
};

TEST_P(GpuForward, MatchesReference) {
  Runtime runtime(gpu_options());
  for (const test::AttentionCase& attention : GetParam().cases) {
    const std::string first = test::run_case(runtime, attention).out.live_bytes();
    EXPECT_EQ(first, test::run_case(runtime, attention).out.live_bytes()) << attention.spec << ": two launches differ";
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, GpuForward, testing::ValuesIn(test::attention_grid()),
                         [](const auto& info) { return info.param.name; });

TEST(GpuForwardLarge, ManyTilesAndBatches) {
  if (std::string why; !cuda_device_available(&why)) GTEST_SKIP() << "no GPU: " << why;
  Runtime runtime(gpu_options());
  for (const char* spec : {"{head_dim: 128, lse: true, mask: causal, gqa_ratio: 4}", "{head_dim: 64, lse: true}",
                           "{head_dim: 256, lse: true, mask: {window: [200, 0]}, softcap: 50}"})
    test::run_case(runtime, {.spec = spec, .batch = 3, .heads_kv = 2, .seqlen_q = 777, .seqlen_kv = 1021, .data = test::Data::outliers});
}

// Case E5: blocks of one launch beyond 65535, the first and the last head right.
TEST(GpuForwardLarge, MoreHeadsThanGridRows) {
  if (std::string why; !cuda_device_available(&why)) GTEST_SKIP() << "no GPU: " << why;
  Runtime runtime(gpu_options());
  test::run_case(runtime, {.spec = "{head_dim: 8, lse: true}", .heads_kv = 70000, .seqlen_q = 1, .seqlen_kv = 3});
}

}  // namespace
}  // namespace tilewright
