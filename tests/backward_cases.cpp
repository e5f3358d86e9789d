// Inputs that broke other backward passes, each with the answer it must have. Letters are the groups: A empty
// and degenerate lengths, C numerics, D head dims, E strides and 64-bit offsets, G determinism.
#include <cmath>

#include "codegen/error.h"
#include "tests/support/backward_grid.h"

namespace tilewright {
namespace {

using test::AttentionCase;
using test::BackwardResult;
using test::Data;
using test::GuardedTensor;
using test::run_backward;

class BackwardCases : public testing::TestWithParam<std::string> {
 protected:
  Runtime runtime{test::simulator_options(3, GetParam())};

  static void expect_all_zero(const GuardedTensor& tensor) {
    for (int64_t i = 0; i < tensor.elements(); ++i) ASSERT_EQ(tensor.get(i), 0.0) << "element " << i;
  }
  static void expect_finite(const GuardedTensor& tensor) {
    for (int64_t i = 0; i < tensor.elements(); ++i)
      ASSERT_TRUE(std::isfinite(tensor.get(i))) << "element " << i;
  }
  static void expect_equal_bits(const BackwardResult& a, const BackwardResult& b) {
    EXPECT_EQ(a.dq.live_bytes(), b.dq.live_bytes());
    EXPECT_EQ(a.dk.live_bytes(), b.dk.live_bytes());
    EXPECT_EQ(a.dv.live_bytes(), b.dv.live_bytes());
  }
};

TEST_P(BackwardCases, A1NoKeysOrNoQueriesAtAll) {
  for (const char* keys : {"none", "causal", "none, deterministic: true"}) {
    const std::string spec = std::string("{pass: backward, head_dim: 64, dtype: fp16, mask: ") + keys + "}";
    expect_all_zero(
        run_backward(runtime, {.spec = spec, .batch = 2, .heads_kv = 2, .seqlen_q = 17, .seqlen_kv = 0}).dq);
    const auto no_queries =
        run_backward(runtime, {.spec = spec, .batch = 2, .heads_kv = 2, .seqlen_q = 0, .seqlen_kv = 17});
    expect_all_zero(no_queries.dk);
    expect_all_zero(no_queries.dv);
  }
}

TEST_P(BackwardCases, A6OneKeyIsExact) {
  const auto result = run_backward(runtime, {.spec = "{pass: backward, head_dim: 16, dtype: fp16}",
                                             .seqlen_q = 1,
                                             .seqlen_kv = 1,
                                             .data = Data::eighths});
  for (int64_t c = 0; c < 16; ++c) EXPECT_EQ(result.dv.get(c), result.d_out.get(c));
  expect_all_zero(result.dq);
  expect_all_zero(result.dk);
}

TEST_P(BackwardCases, B1MoreQueriesThanKeys) {
  const auto result = run_backward(
      runtime, {.spec = "{pass: backward, head_dim: 64, mask: causal}", .seqlen_q = 64, .seqlen_kv = 8});
  for (int64_t i = 0; i < 56 * 64; ++i) ASSERT_EQ(result.dq.get(i), 0.0);
}

TEST_P(BackwardCases, C2HugeScores) {
  const auto result = run_backward(runtime,
                                   {.spec = "{pass: backward, head_dim: 64}",
                                    .seqlen_q = 1,
                                    .seqlen_kv = 1,
                                    .adjust = [](char tensor, int64_t, int64_t, int64_t, int64_t,
                                                 double value) { return tensor == 'd' ? value : 133120.0; }},
                                   false);
  expect_finite(result.dq);
  expect_finite(result.dk);
  expect_finite(result.dv);
  // Of the sm90 family this is all that is asked for: its probabilities come from one multiply-add.
  if (GetParam() == "sm_90a") return;
  for (int64_t c = 0; c < 64; ++c) EXPECT_EQ(result.dv.get(c), result.d_out.get(c));
}

// Large scores that differ little: one fused multiply-add per score would lose the differences altogether.
TEST_P(BackwardCases, C2LargeScoresThatDifferLittle) {
  for (double level : {-30000.0, 30000.0})
    run_backward(runtime, {.spec = "{pass: backward, head_dim: 16}",
                           .seqlen_q = 16,
                           .seqlen_kv = 70,
                           .adjust = [level](char tensor, int64_t, int64_t row, int64_t, int64_t column,
                                             double value) {
                             if (tensor == 'v' || tensor == 'd') return value;
                             if (column == 0) return tensor == 'q' ? level : 4.0;
                             if (column == 1) return tensor == 'q' ? 1.0 : static_cast<double>(row % 13);
                             return 0.0;
                           }});
}

TEST_P(BackwardCases, C3SoftCapBeforeMask) {
  const auto result =
      run_backward(runtime, {.spec = "{pass: backward, head_dim: 128, softcap: 15, mask: causal}",
                             .seqlen_q = 40,
                             .seqlen_kv = 73,
                             .adjust = [](char tensor, int64_t, int64_t, int64_t, int64_t, double value) {
                               return tensor == 'q' ? 17 * value : value;
                             }});
  expect_finite(result.dq);
  expect_finite(result.dk);
}

TEST_P(BackwardCases, D3ValuesNarrowerThanKeys) {
  for (int v : {96, 40, 24})
    run_backward(runtime, {.spec = "{pass: backward, head_dim: {qk: 128, v: " + std::to_string(v) + "}}",
                           .seqlen_q = 70,
                           .seqlen_kv = 70});
}

// Without `deterministic` the sums of dQ have no order: dK and dV alone are the same bits.
TEST_P(BackwardCases, E1OtherLayoutByStrides) {
  const AttentionCase contiguous = {.spec = "{pass: backward, head_dim: 256, deterministic: true}",
                                    .heads_kv = 4,
                                    .seqlen_q = 72,
                                    .seqlen_kv = 72};
  AttentionCase strided = contiguous;
  strided.strides = [](char, const std::vector<int64_t>& s) {
    return std::vector<int64_t>{s[1] * s[2] * s[3], s[3], s[1] * s[3], 1};
  };
  const auto a = run_backward(runtime, contiguous), b = run_backward(runtime, strided, false);
  for (const auto& [x, y] : {std::pair{&a.dq, &b.dq}, {&a.dk, &b.dk}, {&a.dv, &b.dv}})
    for (int64_t row = 0; row < 72; ++row)
      for (int64_t head = 0; head < 4; ++head)
        for (int64_t c = 0; c < 256; c += 17)
          ASSERT_EQ(x->get(row * 1024 + head * 256 + c), y->get(head * 72 * 256 + row * 256 + c));
}

TEST(BackwardWorkspace, E6PassesTwoToTheThirtyFirst) {
  const Target& target = target_by_name("sm_80");
  const AttentionSpec spec = parse_spec("{pass: backward, head_dim: 128}", "spec");
  const Schedule schedule = choose_schedule(spec, target);
  const auto size = [&](int64_t batch) { return workspace_size(spec, schedule, {batch, 4, 10496, 10496}); };
  EXPECT_GT(size(399), 0);
  EXPECT_GT(size(400), size(399));
  EXPECT_GE(size(400), int64_t{400} * 4 * 10496 * 128 * 4);
}

TEST_P(BackwardCases, WorkspaceIsLinearInTheLengths) {
  for (const char* keys :
       {"", ", deterministic: true", ", gqa_ratio: 8", ", softcap: 30, lse: true", ", mask: causal"}) {
    const AttentionSpec spec = parse_spec(std::string("{pass: backward, head_dim: 128") + keys + "}", "spec");
    const Target& target = target_by_name(GetParam());
    const Schedule schedule = choose_schedule(spec, target);
    const auto size = [&](int64_t rows, int64_t keys) {
      return static_cast<double>(workspace_size(spec, schedule, {2, 16, rows, keys}));
    };
    EXPECT_NEAR(size(65536, 65536) / size(32768, 32768), 2.0, 0.01);
    EXPECT_NEAR(size(65536, 65536), size(65536, 1024), 0.01 * size(65536, 65536));
  }
}

TEST_P(BackwardCases, WorkspaceOneByteTooSmall) {
  const AttentionSpec spec = parse_spec("{pass: backward, head_dim: 16}", "spec");
  const auto kernel = runtime.kernel(spec);
  std::vector<uint16_t> elements(64 * 16);
  std::vector<float> rows(64);
  const TensorView view{elements.data(), DataType::bf16, {1, 64, 1, 16}, {}};
  BackwardArguments arguments{.q = view,
                              .k = view,
                              .v = view,
                              .out = view,
                              .lse = {rows.data(), DataType::fp32, {1, 1, 64}, {}},
                              .d_out = view,
                              .dq = view,
                              .dk = view,
                              .dv = view};
  const int64_t need = kernel->workspace_size({1, 1, 64, 64});
  std::vector<float> workspace(need / 4);
  const auto message = [&](void* data, size_t bytes) {
    arguments.workspace = data, arguments.workspace_bytes = bytes;
    try {
      kernel->launch_backward(nullptr, arguments);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string expected = "expected " + std::to_string(need) + " bytes";
  EXPECT_NE(message(workspace.data(), need - 1).find(expected), std::string::npos);
  EXPECT_NE(message(nullptr, need).find(expected), std::string::npos);
}

// Different seeds let blocks and copies run in different orders.
TEST_P(BackwardCases, G2DeterministicBits) {
  const AttentionCase attention = {.spec =
                                       "{pass: backward, head_dim: 64, mask: causal, gqa_ratio: 2, "
                                       "deterministic: true, blocks: {m: 32, n: 32, warps: 4}}",
                                   .batch = 2,
                                   .heads_kv = 2,
                                   .seqlen_q = 96,
                                   .seqlen_kv = 96};
  const auto first = run_backward(runtime, attention);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Runtime other(test::simulator_options(seed, GetParam()));
    expect_equal_bits(first, run_backward(other, attention, false));
  }
}

TEST_P(BackwardCases, G3DeterministicWindow) {
  const AttentionCase attention = {
      .spec =
          "{pass: backward, head_dim: 32, mask: {window: [24, 0]}, gqa_ratio: 8, "
          "deterministic: true, blocks: {m: 32, n: 32, warps: 4}}",
      .heads_kv = 2,
      .seqlen_q = 160,
      .seqlen_kv = 160};
  run_backward(runtime, attention, true, 3);
}

INSTANTIATE_TEST_SUITE_P(Simulator, BackwardCases, testing::ValuesIn(test::backward_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tilewright
