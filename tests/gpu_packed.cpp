// Sequences of different lengths and attention sinks on a GPU, in both families where it has both.
#include <cmath>

#include "runtime/device.h"
#include "tests/support/packed_backward_case.h"

namespace tilewright {
namespace {

using test::PackedCase;
using test::run_packed_case;

class GpuPacked : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string why; !cuda_device_available(&why)) GTEST_SKIP() << "no GPU: " << why;
    RuntimeOptions options;
    options.device.kind = DeviceChoice::Kind::cuda;
    options.disk_cache = false;
    runtime.emplace(options);
    if (std::string(GetParam()) == "sm90" && !runtime->target().wgmma) GTEST_SKIP() << "no wgmma";
  }
  std::string spec(const std::string& keys) const {
    return "{lse: true, layout: packed, blocks: {family: " + std::string(GetParam()) + "}, " + keys + "}";
  }
  std::optional<Runtime> runtime;
};

TEST_P(GpuPacked, LengthsMasksAndSinks) {
  for (const char* keys :
       {"head_dim: 128, mask: causal, gqa_ratio: 4", "head_dim: 64, mask: none, sinks: true", "head_dim: 80",
        "head_dim: 64, mask: {window: [127, 0]}, gqa_ratio: 8, sinks: true, dtype: fp16",
        "head_dim: 256, mask: causal, softcap: 50", "head_dim: {qk: 192, v: 128}, mask: causal_top_left"}) {
    const PackedCase packed = {.spec = spec(keys),
                               .lengths_q = {700, 0, 33, 1, 130, 300, 64},
                               .lengths_kv = {900, 20, 0, 65, 129, 40, 64},
                               .rows_behind = 5,
                               .heads_kv = 2};
    const std::string first = run_packed_case(*runtime, packed).out.live_bytes();
    EXPECT_EQ(first, run_packed_case(*runtime, packed).out.live_bytes()) << keys;
  }
}

TEST_P(GpuPacked, Expressions) {
  for (const char* keys :
       {"head_dim: 128, mask: causal, gqa_ratio: 2, alibi: true", "head_dim: 64, gqa_ratio: 2, bias: true",
        "head_dim: 64, mask: 'q >= kv || kv < prefix[batch]', tensors: {prefix: 'int32[batch]'}",
        "head_dim: 256, mask: 'q >= kv && (q - kv < 100 || kv < 4)'"})
    run_packed_case(*runtime, {.spec = spec(keys),
                               .lengths_q = {700, 0, 33, 1, 130, 300, 64},
                               .lengths_kv = {900, 20, 0, 65, 129, 40, 64},
                               .rows_behind = 5,
                               .tensors = {{"prefix", {{7}, [](const auto& i) { return 20.0 * i[0]; }}},
                                           {"bias", {{1, 2, 700, 900}, [](const auto& i) {
                                                       return std::sin(i[1] + 0.1 * i[2] - 0.3 * i[3]);
                                                     }}}}});
}

TEST_P(GpuPacked, Backward) {
  if (std::string(GetParam()) == "sm90") GTEST_SKIP() << "sm80's kernels serve it";
  for (const char* keys :
       {"head_dim: 128, mask: causal, gqa_ratio: 4, lse: true", "head_dim: 64, sinks: true, dropout: true",
        "head_dim: 256, mask: {window: [127, 0]}, softcap: 50",
        "head_dim: 64, mask: causal, gqa_ratio: 2, deterministic: true",
        "head_dim: 64, mask: 'q >= kv || kv < prefix[batch]', tensors: {prefix: 'int32[batch]'}, alibi: "
        "true, "
        "deterministic: true"})
    test::run_packed_backward(*runtime,
                              {.spec = "{pass: backward, layout: packed, " + std::string(keys) + "}",
                               .lengths_q = {700, 0, 33, 1, 130, 300, 64},
                               .lengths_kv = {900, 20, 0, 65, 129, 40, 64},
                               .rows_behind = 5,
                               .heads_kv = 2,
                               .tensors = {{"prefix", {{7}, [](const auto& i) { return 20.0 * i[0]; }}}}},
                              std::string(keys).find("deterministic") == std::string::npos ? 1 : 20);
}

TEST_P(GpuPacked, NeighboursMayHoldAnything) {
  for (double value : {std::nan(""), std::numeric_limits<double>::infinity()})
    run_packed_case(*runtime, {.spec = spec("head_dim: 128, mask: causal"),
                               .lengths_q = {300, 77},
                               .lengths_kv = {300, 77},
                               .used_q = {200, 70},
                               .used_kv = {190, 61},
                               .rows_behind = 9,
                               .filler = value});
}

TEST_P(GpuPacked, E5ManySequences) {
  for (int count : {900, 80000}) {
    const std::vector<int> lengths(count, 16);
    run_packed_case(
        *runtime, {.spec = spec("head_dim: 16, mask: causal"), .lengths_q = lengths, .lengths_kv = lengths});
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GpuPacked, testing::Values("sm80", "sm90"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tilewright
