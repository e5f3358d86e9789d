// Inputs that broke other attention kernels, each with the answer it must have. Letters are the groups: A
// empty and degenerate lengths, B masks, C numerics, D ratios and head dims, E strides.
#include <cmath>
#include <numeric>

#include "tests/support/attention_case.h"

namespace tilewright {
namespace {

using test::AttentionCase;
using test::AttentionResult;
using test::Data;
using test::run_case;

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

class ForwardCases : public testing::TestWithParam<const char*> {
 protected:
  Runtime runtime{test::simulator_options(3, GetParam())};

  static void expect_zero_row(const AttentionResult& result, int64_t batch, int64_t head, int64_t row) {
    for (int64_t c = 0; c < result.spec.head_dim.v; ++c)
      EXPECT_EQ(result.out_at(batch, row, head, c), 0.0) << "row " << row << " column " << c;
    if (result.spec.lse) {
      EXPECT_EQ(result.lse_at(batch, head, row), minus_infinity) << "row " << row;
    }
  }
  static void expect_equal_bits(const AttentionResult& a, const AttentionResult& b) {
    EXPECT_EQ(a.out.live_bytes(), b.out.live_bytes());
    EXPECT_EQ(a.lse.live_bytes(), b.lse.live_bytes());
  }
};

TEST_P(ForwardCases, A1NoKeysAtAll) {
  for (const char* mask : {"none", "causal"}) {
    const auto result =
        run_case(runtime, {.spec = std::string("{head_dim: 64, dtype: fp16, lse: true, mask: ") + mask + "}",
                           .batch = 2,
                           .heads_kv = 2,
                           .seqlen_q = 17,
                           .seqlen_kv = 0});
    for (int64_t row : {0, 8, 16}) expect_zero_row(result, 1, 1, row);
  }
}

TEST_P(ForwardCases, A6OneKeyIsCopiedExactly) {
  const auto result = run_case(runtime, {.spec = "{head_dim: 16, dtype: fp16, lse: true}",
                                         .seqlen_q = 1,
                                         .seqlen_kv = 1,
                                         .data = Data::eighths});
  double dot = 0;
  for (int c = 0; c < 16; ++c) {
    EXPECT_EQ(result.out_at(0, 0, 0, c), result.v.get(c));
    dot += result.q.get(c) * result.k.get(c);
  }
  EXPECT_EQ(result.lse_at(0, 0, 0), dot / 4);
}

TEST_P(ForwardCases, B1MoreQueriesThanKeys) {
  const auto result =
      run_case(runtime, {.spec = "{head_dim: 64, lse: true, mask: causal}", .seqlen_q = 64, .seqlen_kv = 8});
  for (int64_t row = 0; row < 56; ++row) expect_zero_row(result, 0, 0, row);
  for (int64_t c = 0; c < 64; ++c) EXPECT_EQ(result.out_at(0, 56, 0, c), result.v.get(c));
}

TEST_P(ForwardCases, B2WindowsThatAreCausal) {
  const auto with = [&](const char* mask) {
    return run_case(
        runtime, {.spec = std::string("{head_dim: 64, lse: true, blocks: {m: 64, n: 32, stages: 2}, mask: ") +
                          mask + "}",
                  .seqlen_q = 160,
                  .seqlen_kv = 160});
  };
  const auto causal = with("causal");
  expect_equal_bits(causal, with("{window: [159, 0]}"));
  expect_equal_bits(causal, with("{window: [160, 0]}"));
  expect_equal_bits(causal, with("{window: [inf, 0]}"));
}

TEST_P(ForwardCases, B3NegativeWindowSideIsANumber) {
  const auto result = run_case(
      runtime,
      {.spec = "{head_dim: 64, lse: true, mask: {window: [64, -32]}}", .seqlen_q = 128, .seqlen_kv = 128});
  for (int64_t row = 0; row < 32; ++row) expect_zero_row(result, 0, 0, row);
  EXPECT_NE(result.lse_at(0, 0, 32), minus_infinity);
}

TEST_P(ForwardCases, B3WindowsFarOutside) {
  for (const char* mask : {"{window: [-2000000000, 2000000000]}", "{window: [2000000000, -2000000000]}"}) {
    const auto result =
        run_case(runtime, {.spec = std::string("{head_dim: 64, lse: true, mask: ") + mask + "}",
                           .seqlen_q = 40,
                           .seqlen_kv = 40});
    for (int64_t row : {0, 39}) expect_zero_row(result, 0, 0, row);
  }
  run_case(runtime, {.spec = "{head_dim: 64, lse: true, mask: {window: [2000000000, 2000000000]}}",
                     .seqlen_q = 40,
                     .seqlen_kv = 40});
}

TEST_P(ForwardCases, B4WhollyMaskedTileMetFirst) {
  run_case(runtime, {.spec = "{head_dim: 64, lse: true, mask: causal, gqa_ratio: 7, blocks: {n: 32}}",
                     .seqlen_q = 40,
                     .seqlen_kv = 104,
                     .data = Data::near_minus,
                     .level = 200});
}

TEST_P(ForwardCases, C1ScoresNearTheEndOfFp16) {
  const auto result = run_case(
      runtime, {.spec = "{head_dim: 64, dtype: fp16, lse: true}",
                .seqlen_q = 4,
                .seqlen_kv = 40,
                .adjust = [](char tensor, int64_t, int64_t row, int64_t, int64_t column, double value) {
                  if (tensor == 'q') return -250.0;
                  if (tensor == 'k') return column == 0 ? 30.0 + static_cast<double>(row) / 32 : 30.0;
                  return value;
                }});
  EXPECT_NEAR(result.lse_at(0, 0, 0), -59999.5, 0.1);
}

TEST_P(ForwardCases, C2HugeScores) {
  const auto result = run_case(
      runtime, {.spec = "{head_dim: 64, lse: true}",
                .seqlen_q = 1,
                .seqlen_kv = 1,
                .adjust = [](char, int64_t, int64_t, int64_t, int64_t, double) { return 133120.0; }});
  for (int64_t c = 0; c < 64; ++c) EXPECT_EQ(result.out_at(0, 0, 0, c), 133120.0);
  EXPECT_NEAR(result.lse_at(0, 0, 0) / 1.4177e11, 1.0, 1e-4);
}

// The same with several keys and tiles: one fused multiply-add per score would lose the differences
// altogether.
TEST_P(ForwardCases, C2LargeScoresThatDifferLittle) {
  for (double level : {-30000.0, 30000.0})
    run_case(runtime,
             {.spec = "{head_dim: 16, lse: true, blocks: {n: 16, stages: 2}}",
              .seqlen_q = 16,
              .seqlen_kv = 70,
              .adjust = [level](char tensor, int64_t, int64_t row, int64_t, int64_t column, double value) {
                if (tensor == 'v') return value;
                if (column == 0) return tensor == 'q' ? level : 4.0;
                if (column == 1) return tensor == 'q' ? 1.0 : static_cast<double>(row % 13);
                return 0.0;
              }});
}

TEST_P(ForwardCases, C3SoftCapBeforeMask) {
  run_case(runtime, {.spec = "{head_dim: 128, lse: true, softcap: 15, mask: causal}",
                     .seqlen_q = 40,
                     .seqlen_kv = 73,
                     .adjust = [](char tensor, int64_t, int64_t, int64_t, int64_t, double value) {
                       return tensor == 'q' ? 17 * value : value;
                     }});
}

TEST_P(ForwardCases, C6TwoLaunchesMergedByLse) {
  const auto keys = [&](int64_t begin, int64_t count) {
    return run_case(
        runtime,
        {.spec = "{head_dim: 32, lse: true}",
         .seqlen_q = 20,
         .seqlen_kv = count,
         .adjust = [begin](char tensor, int64_t, int64_t row, int64_t, int64_t column, double value) {
           if (tensor == 'q') return std::sin(static_cast<double>(row * 37 + column));
           (void)value;
           return std::sin(static_cast<double>((row + begin) * 11 + column * 5 + (tensor == 'v')));
         }});
  };
  const auto whole = keys(0, 100), first = keys(0, 96), last = keys(96, 4);
  for (int64_t row = 0; row < 20; ++row) {
    const double a = std::exp(first.lse_at(0, 0, row)), b = std::exp(last.lse_at(0, 0, row));
    EXPECT_NEAR(std::log(a + b), whole.lse_at(0, 0, row), 1e-5);
    for (int64_t c = 0; c < 32; ++c)
      EXPECT_NEAR((a * first.out_at(0, row, 0, c) + b * last.out_at(0, row, 0, c)) / (a + b),
                  whole.out_at(0, row, 0, c), 0.01);
  }
}

TEST_P(ForwardCases, C7SinksJoinTheSum) {
  for (const char* rest :
       {"mask: causal", "mask: {window: [20, 0]}, softcap: 15", "dtype: fp16, head_dim: 128"})
    run_case(runtime,
             {.spec = std::string("{lse: true, sinks: true, gqa_ratio: 2, ") + rest +
                      (std::string(rest).find("head_dim") == std::string::npos ? ", head_dim: 64}" : "}"),
              .heads_kv = 2,
              .seqlen_q = 50,
              .seqlen_kv = 40});
}

TEST_P(ForwardCases, D1EachHeadItsOwnKvHead) {
  for (auto [ratio, kv] : std::vector<std::pair<int, int>>{{5, 2}, {6, 2}, {7, 1}, {12, 2}})
    for (int64_t rows : {1, 33})
      run_case(runtime, {.spec = "{head_dim: 128, lse: true, gqa_ratio: " + std::to_string(ratio) + "}",
                         .heads_kv = kv,
                         .seqlen_q = rows,
                         .seqlen_kv = 33});
}

TEST_P(ForwardCases, D2HeadDimsBetweenTheUsualOnes) {
  for (int dim : {72, 80, 88, 96, 112, 136})
    run_case(runtime,
             {.spec = "{dtype: fp16, lse: true, mask: causal, head_dim: " + std::to_string(dim) + "}",
              .seqlen_q = 33,
              .seqlen_kv = 33});
}

TEST_P(ForwardCases, D3ValuesNarrowerThanKeys) {
  for (int v : {96, 40, 24})
    run_case(runtime, {.spec = "{lse: true, head_dim: {qk: 128, v: " + std::to_string(v) + "}}",
                       .seqlen_q = 70,
                       .seqlen_kv = 70});
}

TEST_P(ForwardCases, E1OtherLayoutByStrides) {
  const AttentionCase contiguous = {
      .spec = "{head_dim: 256, lse: true}", .heads_kv = 4, .seqlen_q = 72, .seqlen_kv = 72};
  AttentionCase strided = contiguous;
  strided.strides = [](char, const std::vector<int64_t>& s) {
    return std::vector<int64_t>{s[1] * s[2] * s[3], s[3], s[1] * s[3], 1};
  };
  const auto a = run_case(runtime, contiguous), b = run_case(runtime, strided);
  for (int64_t row = 0; row < 72; ++row)
    for (int64_t head = 0; head < 4; ++head) {
      EXPECT_EQ(a.lse_at(0, head, row), b.lse_at(0, head, row));
      for (int64_t c = 0; c < 256; c += 17) EXPECT_EQ(a.out_at(0, row, head, c), b.out_at(0, row, head, c));
    }
}

TEST_P(ForwardCases, E2EverySecondRowOfKOrOfV) {
  const AttentionCase plain = {.spec = "{head_dim: 64, lse: true}", .seqlen_q = 30, .seqlen_kv = 70};
  const auto expected = run_case(runtime, plain);
  for (char which : {'k', 'v'}) {
    AttentionCase strided = plain;
    strided.strides = [which](char tensor, const std::vector<int64_t>& s) {
      return tensor == which ? std::vector<int64_t>{2 * s[1] * s[2] * s[3], 2 * s[2] * s[3], s[3], 1}
                             : std::vector<int64_t>{};
    };
    expect_equal_bits(expected, run_case(runtime, strided));
  }
}

TEST_P(ForwardCases, E3StridesOfSingleElementsDoNotCount) {
  const AttentionCase plain = {.spec = "{head_dim: 64, lse: true}", .seqlen_q = 1, .seqlen_kv = 70};
  AttentionCase odd = plain;
  odd.strides = [](char tensor, const std::vector<int64_t>& s) {
    // batch 1 and head count 1 everywhere; the single query row has stride 7
    return tensor == 'q' || tensor == 'o' ? std::vector<int64_t>{0, 7, 7, 1}
                                          : std::vector<int64_t>{0, s[3], 7, 1};
  };
  expect_equal_bits(run_case(runtime, plain), run_case(runtime, odd));
}

// NaN in one key must not spread to rows that do not see it, nor disappear from those that do.
TEST_P(ForwardCases, NanStaysInItsRows) {
  const AttentionSpec spec = parse_spec("{head_dim: 32, mask: causal}", "spec");
  const auto kernel = runtime.kernel(spec);
  std::vector<uint16_t> q(50 * 32), k(q), v(q), out(q.size(), 0);
  for (size_t i = 0; i < q.size(); ++i) {
    store_element(q.data(), DataType::bf16, i, std::sin(i));
    store_element(k.data(), DataType::bf16, i, std::sin(2 * i));
    store_element(v.data(), DataType::bf16, i, std::sin(3 * i));
  }
  store_element(k.data(), DataType::bf16, 20 * 32, std::nan(""));
  const auto view = [](std::vector<uint16_t>& data) {
    return TensorView{data.data(), DataType::bf16, {1, 50, 1, 32}, {}};
  };
  kernel->launch(nullptr, {.q = view(q), .k = view(k), .v = view(v), .out = view(out)});
  for (int64_t row = 0; row < 50; ++row)
    EXPECT_EQ(std::isnan(load_element(out.data(), DataType::bf16, row * 32)), row >= 20) << "row " << row;
}

// One target of each family.
INSTANTIATE_TEST_SUITE_P(Simulator, ForwardCases, testing::Values("sm_80", "sm_90a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tilewright
