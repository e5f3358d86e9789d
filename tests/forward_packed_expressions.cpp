// Layout packed with masks and scores as expressions: positions and lengths are those of a sequence, `batch`
// is its number.
#include <cmath>

#include "tests/support/packed_case.h"

namespace tilewright {
namespace {

using test::PackedCase;
using test::run_packed_case;

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

class PackedExpressions : public testing::TestWithParam<const char*> {
 protected:
  Runtime runtime{test::simulator_options(5, GetParam())};

  static PackedCase of(const std::string& keys) {
    return {.spec = "{layout: packed, lse: true, " + keys + "}",
            .lengths_q = {75, 0, 1, 33, 150, 20, 9},
            .lengths_kv = {75, 20, 40, 33, 190, 0, 70},
            .rows_behind = 3,
            .scalars = {{"window", 37}, {"prefix", 21}, {"cap", 5}},
            // Along q and kv as long as the longest sequence, longer, or shorter: the last element goes on.
            .tensors = {
                {"prefixes", {{7}, [](const auto& i) { return i[0] % 2 ? 30 : 5; }}},
                {"used", {{7}, [](const auto& i) { return 11 + 13 * i[0]; }}},
                {"first", {{7, 150}, [](const auto& i) { return i[0] * 4 + i[1] % 9; }}},
                {"document", {{7, 190}, [](const auto& i) { return (i[1] + 9 * i[0]) / 25; }}},
                {"start", {{1, 60}, [](const auto& i) { return i[1] / 40 * 40; }}},
                {"keep", {{7, 1, 200}, [](const auto& i) { return (i[2] + i[0]) % 5 != 0; }}},
                {"slope", {{2}, [](const auto& i) { return 0.25 / (1 + i[0]); }}},
                {"table", {{2, 32}, [](const auto& i) { return std::sin(i[0] + 0.3 * i[1]); }}},
                {"extra",
                 {{7, 2, 150, 190}, [](const auto& i) { return std::sin(i[0] + i[1] + i[2] * 7 + i[3]); }}},
                {"bias",
                 {{1, 2, 150, 190}, [](const auto& i) { return std::cos(i[1] + i[2] * 3 - i[3] * 5); }}}}};
  }
};

TEST_P(PackedExpressions, Masks) {
  for (const std::string mask : {
           "\"q >= kv && q - kv < window\", scalars: {window: int}",  // a range in closed form
           "\"q >= kv || kv < prefixes[batch]\", tensors: {prefixes: 'int32[batch]'}",  // by sequence
           "\"q / 32 == kv / 32 && kv <= q\"",
           "\"q - seqlen_kv + seqlen_q >= kv\"",  // causal, top left
           "\"kv * 2 < seqlen_kv || kv + 3 > seqlen_kv\"",
           "\"document[batch, q] == document[batch, kv] && q >= kv\", tensors: {document: 'int32[batch, "
           "kv]'}",
           "\"kv >= start[batch, q] && q >= kv\", tensors: {start: 'int32[batch, q]'}",
           "\"kv >= first[batch, q] && kv % 3 != 1\", tensors: {first: 'int32[batch, q]'}",  // scanned
           "\"q >= kv && (q - kv < 24 || kv < 4)\"",
           "\"kv < used[batch]\", tensors: {used: 'int32[batch]'}",
           "\"keep[batch, head, kv]\", tensors: {keep: 'bool[batch, head, kv]'}",
       })
    run_packed_case(runtime, of("head_dim: 32, gqa_ratio: 2, blocks: {m: 64, n: 16}, mask: " + mask));
}

TEST_P(PackedExpressions, Scores) {
  for (const std::string score : {
           "score: \"cap * tanh(score / cap)\", scalars: {cap: float}",
           "score: \"score - slope[head] * abs(q - kv)\", tensors: {slope: 'float32[head]'}",
           "score: \"score + table[head, min(abs(q - kv), 31)]\", tensors: {table: 'float32[head, 32]'}",
           "score: \"score + extra[batch, head, q, kv]\", tensors: {extra: 'bf16[batch, head, q, kv]'}",
           "alibi: true",
           "bias: true, alibi: true, softcap: 20",
       })
    for (const char* mask : {"causal", "\"q >= kv && kv % 7 != 3\""})
      run_packed_case(runtime, of("head_dim: 32, gqa_ratio: 2, blocks: {m: 64, n: 16}, mask: " +
                                  std::string(mask) + ", " + score));
}

// The default schedules; what sequences hold must not reach the next, nor rows of none.
TEST_P(PackedExpressions, HeadDimsAndNeighbours) {
  for (const char* keys :
       {"head_dim: 64, gqa_ratio: 2, bias: true, mask: causal", "head_dim: 128, gqa_ratio: 2, alibi: true",
        "head_dim: 256, dtype: fp16, mask: 'q >= kv && (q - kv < 24 || kv < 4)'",
        "head_dim: {qk: 72, v: 40}, sinks: true, mask: 'q >= kv && q - kv < 50', score: 'score * 0.5'"}) {
    PackedCase packed = of(keys);
    packed.used_q = {70, 0, 1, 30, 150, 20, 0};
    packed.used_kv = {75, 18, 40, 0, 177, 0, 70};
    for (double filler : {std::nan(""), -minus_infinity}) {
      packed.filler = filler;
      run_packed_case(runtime, packed);
    }
  }
}

// The equal expression is the built-in mask, with other sequences' keys as far away.
TEST_P(PackedExpressions, EqualMasksGiveEqualBits) {
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"causal", "\"kv <= q\""},
      {"{window: [40, 0]}", "\"q >= kv && q - kv <= 40\""},
      {"causal", "\"kv <= q && kv >= q - window\", scalars: {window: int}"}};
  for (const auto& [built_in, expression] : pairs) {
    PackedCase a = of("head_dim: 32, blocks: {m: 64, n: 32}, mask: " + built_in),
               b = of("head_dim: 32, blocks: {m: 64, n: 32}, mask: " + expression);
    b.scalars["window"] = 1000;
    const auto one = run_packed_case(runtime, a), other = run_packed_case(runtime, b);
    EXPECT_EQ(one.out.live_bytes(), other.out.live_bytes()) << expression;
    EXPECT_EQ(one.lse.live_bytes(), other.lse.live_bytes()) << expression;
  }
}

// Tiles that a mask's range leaves out are not loaded: NaN in their keys reaches nobody.
TEST_P(PackedExpressions, TilesOutsideOfTheRangeAreNotLoaded) {
  PackedCase packed =
      of("head_dim: 32, gqa_ratio: 1, blocks: {m: 64, n: 16}, mask: \"kv < used[batch]\", "
         "tensors: {used: 'int32[batch]'}");
  packed.lengths_q = {30, 40}, packed.lengths_kv = {100, 90};
  packed.tensors = {{"used", {{2}, [](const auto& i) { return i[0] == 0 ? 17 : 60; }}}};
  const auto clean = run_packed_case(runtime, packed);
  packed.adjust = [](char tensor, int64_t row, int64_t, int64_t, double element) {
    return tensor != 'q' && ((row >= 32 && row < 100) || row >= 164) ? std::nan("") : element;
  };
  PackedCase dirty = packed;
  dirty.checked = false;
  const auto result = run_packed_case(runtime, dirty);
  EXPECT_EQ(clean.out.live_bytes(), result.out.live_bytes());
  EXPECT_EQ(clean.lse.live_bytes(), result.lse.live_bytes());
}

TEST_P(PackedExpressions, BadArguments) {
  const auto message_of = [&](const PackedCase& packed) {
    try {
      run_packed_case(runtime, packed);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  PackedCase packed = of("head_dim: 32, mask: \"kv < used[batch]\", tensors: {used: 'int32[batch]'}");
  packed.tensors = {{"used", {{6}, [](const auto&) { return 1; }}}};
  EXPECT_EQ(message_of(packed), "tensor used: batch dimension is 6, expected 7 or 1");
  const std::string rows = message_of(of("head_dim: 32, mask: \"kv < n[kv]\", tensors: {n: 'int32[kv]'}"));
  EXPECT_NE(rows.find("tensor n: int32[kv] with `layout: packed` lacks a batch dimension"), rows.npos)
      << rows;
  packed = of("head_dim: 32, gqa_ratio: 2, bias: true");
  packed.tensors = {{"bias", {{7, 2, 0, 3}, [](const auto&) { return 1; }}}};
  EXPECT_EQ(message_of(packed), "tensor bias: q dimension is 0, expected 1 or more");
}

INSTANTIATE_TEST_SUITE_P(Simulator, PackedExpressions, testing::Values("sm_80", "sm_90a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tilewright
