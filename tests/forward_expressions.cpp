// Masks and scores as expressions, in kernels of both families: against the fp64 reference, and against the
// built-in masks that say the same.
#include <cmath>

#include "codegen/kernel_expressions.h"
#include "tests/support/attention_case.h"

namespace tilewright {
namespace {

using test::AttentionCase;
using test::AttentionResult;
using test::run_case;

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

std::string spec_of(const std::string& keys, int head_dim = 32) {
  return "{head_dim: " + std::to_string(head_dim) + ", lse: true, " + keys + "}";
}

class Expressions : public testing::TestWithParam<const char*> {
 protected:
  Runtime runtime{test::simulator_options(5, GetParam())};

  static void expect_zero_row(const AttentionResult& result, int64_t head, int64_t row) {
    for (int64_t c = 0; c < result.spec.head_dim.v; ++c)
      EXPECT_EQ(result.out_at(0, row, head, c), 0.0) << row;
    EXPECT_EQ(result.lse_at(0, head, row), minus_infinity) << row;
  }
};

/// Documents of very different lengths, as a launch gives them: the document of each key.
double document_of(const std::vector<int64_t>& index) {
  const int64_t key = index.back();
  return key < 7 ? 3 : key < 90 ? 5 : key < 91 ? 6 : 7;
}

TEST_P(Expressions, MasksOfModels) {
  const std::string blocks = ", blocks: {m: 64, n: 16}";
  for (const std::string mask : {
           "\"q >= kv && q - kv < window\", scalars: {window: int}",                        // window
           "\"kv <= q || kv < prefix\", scalars: {prefix: int}",                            // prefix-LM
           "\"q / 32 == kv / 32 && kv <= q\"",                                              // chunked
           "\"document[q] == document[kv] && q >= kv\", tensors: {document: 'int32[kv]'}",  // documents
           "\"kv >= start[q] && q >= kv\", tensors: {start: 'int32[q]'}",  // documents, bounded
           "\"kv >= first[batch, q] && kv % 3 != 1\", tensors: {first: 'int32[batch, q]'}",  // the same,
                                                                                             // scanned
           "\"q >= kv && (q - kv) % 3 == 0\"",                                               // dilated
           "\"q >= kv && (q - kv < 24 || kv < 4)\"",                                     // sinks and window
           "\"kv < used[batch]\", tensors: {used: 'int32[batch]'}",                      // lengths
           "\"keep[batch, head, 0, kv]\", tensors: {keep: 'bool[batch, head, q, kv]'}",  // padding
       })
    for (auto [queries, keys] : std::vector<std::pair<int, int>>{{150, 150}, {70, 133}, {90, 40}, {1, 99}})
      run_case(
          runtime,
          {.spec = spec_of("gqa_ratio: 3, mask: " + mask + blocks),
           .batch = 2,
           .seqlen_q = queries,
           .seqlen_kv = keys,
           .scalars = {{"window", 37}, {"prefix", 21}},
           .tensors = {{"document", {{keys}, document_of}},
                       {"start", {{queries}, [](const auto& i) { return i[0] / 40 * 40; }}},
                       {"first", {{2, queries}, [](const auto& i) { return i[0] * 50 + i[1] % 9; }}},
                       {"used", {{2}, [](const auto& i) { return i[0] == 0 ? 17 : 60; }}},
                       {"keep", {{2, 3, 1, keys}, [](const auto& i) { return (i[3] + i[1]) % 5 != 0; }}}}});
}

TEST_P(Expressions, ScoresOfModels) {
  for (const std::string score : {
           "\"10 * tanh(score / 10)\"",
           "\"cap * tanh(score / cap)\", scalars: {cap: float}",
           "\"score - slope[head] * abs(q - kv)\", tensors: {slope: 'float32[head]'}",
           "\"score + table[head, min(abs(q - kv), 31)]\", tensors: {table: 'float32[head, 32]'}",
           "\"score + extra[batch, head, q, kv]\", tensors: {extra: 'bf16[batch, head, q, kv]'}",
           "\"kv % 2 == 0 ? score : 0.5 * score + 1\"",
       })
    for (const char* mask : {"none", "causal", "\"q >= kv && kv % 7 != 3\""})
      run_case(runtime,
               {.spec = spec_of(std::string("gqa_ratio: 2, blocks: {m: 64, n: 16}, mask: ") + mask +
                                ", score: " + score),
                .seqlen_q = 75,
                .seqlen_kv = 101,
                .scalars = {{"cap", 5}},
                .tensors = {{"slope", {{2}, [](const auto& i) { return 0.25 / (1 + i[0]); }}},
                            {"table", {{2, 32}, [](const auto& i) { return std::sin(i[0] + 0.3 * i[1]); }}},
                            {"extra", {{1, 2, 75, 101}, [](const auto& i) {
                                         return std::sin(i[1] + i[2] * 7 + i[3]);
                                       }}}}});
}

// With more keys than one look of 32 lanes takes in, and gaps of empty tiles.
TEST_P(Expressions, LongWalks) {
  for (uint64_t seed : {1, 2}) {
    Runtime other(test::simulator_options(seed, GetParam()));
    run_case(other,
             {.spec = spec_of(
                  "mask: \"q >= kv && (q - kv < 20 || kv / 16 % 9 == 0)\", blocks: {m: 64, n: 16}", 16),
              .heads_kv = 2,
              .seqlen_q = 130,
              .seqlen_kv = 1100,
              .seed = seed});
  }
}

TEST_P(Expressions, EqualMasksGiveEqualBits) {
  const auto with = [&](const std::string& mask) {
    return run_case(
        runtime,
        {.spec = spec_of("blocks: {m: 64, n: 32}, mask: " + mask), .seqlen_q = 100, .seqlen_kv = 150});
  };
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"causal", "\"kv <= q\""},
      {"{window: [40, 0]}", "\"q >= kv && q - kv <= 40\""},
      {"{window: [5, 9]}", "\"abs(q - kv + 2) <= 7\""},
      {"{window: [40, 0]}", "\"!(q < kv || q > kv + 40)\""},
      {"{window: [40, 0]}", "\"q >= kv && q - kv <= w\", scalars: {w: int}"}};
  for (const auto& [built_in, expression] : pairs) {
    const AttentionCase equal = {.spec = spec_of("blocks: {m: 64, n: 32}, mask: " + expression),
                                 .seqlen_q = 100,
                                 .seqlen_kv = 150,
                                 .scalars = {{"w", 40}}};
    const AttentionResult a = with(built_in), b = run_case(runtime, equal);
    EXPECT_EQ(a.out.live_bytes(), b.out.live_bytes()) << expression;
    EXPECT_EQ(a.lse.live_bytes(), b.lse.live_bytes()) << expression;
  }
}

TEST_P(Expressions, B5BiasOfMinusInfinity) {
  const auto result =
      run_case(runtime, {.spec = spec_of("bias: true", 256),
                         .seqlen_q = 16,
                         .seqlen_kv = 192,
                         .tensors = {{"bias", {{1, 1, 16, 192}, [](const auto& i) {
                                                 return i[3] < 128 || i[2] == 3 ? minus_infinity : 0.0;
                                               }}}}});
  expect_zero_row(result, 0, 3);
}

TEST_P(Expressions, B6FirstKeysAndAWindow) {
  run_case(runtime, {.spec = spec_of(
                         "mask: \"q >= kv && (q - kv < 96 || kv < 4)\", gqa_ratio: 4, blocks: {n: 64}", 128),
                     .seqlen_q = 320,
                     .seqlen_kv = 320});
}

TEST_P(Expressions, G6RowsThatSeeNothing) {
  const auto result =
      run_case(runtime, {.spec = spec_of("mask: \"(q / 4 == kv / 4 || (q % 4 != 3 && kv < q)) && kv < 80\""),
                         .seqlen_q = 96,
                         .seqlen_kv = 96});
  for (int64_t row : {83, 87, 91, 95}) expect_zero_row(result, 0, row);
}

TEST_P(Expressions, TensorsByAnyStrides) {
  // Column-major, with gaps, backwards: and broadcast.
  for (const std::vector<int64_t>& strides :
       {std::vector<int64_t>{0, 0, 1, 50}, {0, 0, 180, 2}, {0, 0, -90, 1}, {7, 7, 90, -1}})
    run_case(
        runtime,
        {.spec = spec_of("bias: true, mask: causal"),
         .seqlen_q = 50,
         .seqlen_kv = 90,
         .tensors = {
             {"bias", {{1, 1, 50, 90}, [](const auto& i) { return std::sin(3 * i[2] + i[3]); }, strides}}}});
  run_case(runtime,
           {.spec = spec_of("bias: true, gqa_ratio: 2"),
            .batch = 2,
            .seqlen_q = 20,
            .seqlen_kv = 33,
            .tensors = {{"bias", {{2, 1, 1, 33}, [](const auto& i) { return std::sin(i[0] + i[3]); }}}}});
}

TEST_P(Expressions, AlibiByStandardSlopes) {
  EXPECT_EQ(alibi_heads(1), 1);
  EXPECT_EQ(alibi_heads(12), 8);
  EXPECT_EQ(alibi_heads(64), 64);
  for (int heads : {1, 4, 6}) {
    // The same by a tensor of slopes, made after the paper's rule.
    const int n = static_cast<int>(alibi_heads(heads));
    const auto slope = [n](const std::vector<int64_t>& i) {
      const double head = static_cast<double>(i[0]);
      return std::exp2(head < n ? -8 * (head + 1) / n : -4 * (2 * (head - n) + 1) / n);
    };
    const AttentionCase built_in = {
        .spec = spec_of("alibi: true, mask: causal"), .heads_kv = heads, .seqlen_q = 40, .seqlen_kv = 70};
    AttentionCase by_tensor = built_in;
    by_tensor.spec = spec_of(
        "score: \"score - slope[head] * abs(q - kv)\", mask: causal, tensors: {slope: 'float32[head]'}");
    by_tensor.tensors = {{"slope", {{heads}, slope}}};
    const auto a = run_case(runtime, built_in), b = run_case(runtime, by_tensor);
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t row : {0, 39}) EXPECT_NEAR(a.lse_at(0, head, row), b.lse_at(0, head, row), 1e-4);
  }
}

// What an expression spoils in one row stays there, and the kernel ends.
TEST_P(Expressions, NanAndInfinityStayInTheirRows) {
  for (const char* bad : {"log(-1.0)", "inf", "-inf", "0.0 / (score - score)"}) {
    const AttentionSpec spec = parse_spec(
        std::string("{head_dim: 32, mask: causal, score: \"q == 20 ? ") + bad + " : score\"}", "spec");
    const auto kernel = runtime.kernel(spec);
    std::vector<uint16_t> q(50 * 32), k(q), v(q), out(q.size(), 0);
    for (size_t i = 0; i < q.size(); ++i) {
      store_element(q.data(), DataType::bf16, i, std::sin(i));
      store_element(k.data(), DataType::bf16, i, std::sin(2 * i));
      store_element(v.data(), DataType::bf16, i, std::sin(3 * i));
    }
    const auto view = [](std::vector<uint16_t>& data) {
      return TensorView{data.data(), DataType::bf16, {1, 50, 1, 32}, {}};
    };
    ForwardArguments arguments = {.q = view(q), .k = view(k), .v = view(v), .out = view(out)};
    kernel->launch(nullptr, arguments);
    const std::vector<uint16_t> spoiled = out;
    runtime.kernel(parse_spec("{head_dim: 32, mask: causal}", "spec"))->launch(nullptr, arguments);
    for (int64_t i = 0; i < 50 * 32; ++i)
      if (i / 32 != 20) {
        EXPECT_NEAR(load_element(out.data(), DataType::bf16, i),
                    load_element(spoiled.data(), DataType::bf16, i), 0.02)
            << bad << " element " << i;
      }
  }
}

TEST_P(Expressions, OtherScalarsNeedNoOtherKernel) {
  const AttentionSpec spec =
      parse_spec(spec_of("mask: \"q - kv < w && kv <= q\", scalars: {w: int}"), "spec");
  CacheResult from = CacheResult::compiled;
  const auto kernel = runtime.kernel(spec);
  for (int window : {1, 40}) {
    run_case(runtime, {.spec = spec_of("mask: \"q - kv < w && kv <= q\", scalars: {w: int}"),
                       .scalars = {{"w", window}}});
    EXPECT_EQ(runtime.kernel(spec, &from), kernel);
    EXPECT_EQ(from, CacheResult::memory);
  }
}

INSTANTIATE_TEST_SUITE_P(Simulator, Expressions, testing::Values("sm_80", "sm_90a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tilewright
