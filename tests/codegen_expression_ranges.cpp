// Interval analysis is sound on random masks, tiles and data, and tight where masks are of the known kinds.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "codegen/expression_evaluate.h"
#include "codegen/expression_key_ranges.h"
#include "codegen/expression_ranges.h"
#include "tests/support/random_expression.h"

namespace tilewright {
namespace {

using ranges::TileState;

bool sees(const Expression& mask, const Environment& environment) {
  return evaluate(mask, environment).integer != 0;
}

TEST(ExpressionRanges, TilesAreNeverCalledFullOrEmptyWrongly) {
  RandomExpressions random(1);
  int full = 0, empty = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const Expression mask = random.mask(static_cast<int>(random.between(2, 6)));
    const RandomData data(random, random.between(1, 40), random.between(1, 40));
    for (int tile = 0; tile < 4; ++tile) {
      const int64_t shift = data.seqlen_kv - data.seqlen_q;
      const int64_t q0 = random.below(data.seqlen_q) + shift, kv0 = random.below(data.seqlen_kv);
      const int64_t q1 = q0 + random.below(8), kv1 = kv0 + random.below(8);
      const int64_t head = random.below(data.heads), batch = random.below(data.batch);
      const TileState state =
          ranges::state_of(range_of(mask, data.tile(q0, q1, kv0, kv1, head, batch)).truth);
      full += state == TileState::full;
      empty += state == TileState::empty;
      if (state == TileState::mixed) continue;
      for (int64_t q = q0; q <= q1; ++q)
        for (int64_t kv = kv0; kv <= kv1; ++kv)
          ASSERT_EQ(sees(mask, data.at(q, kv, head, batch)), state == TileState::full)
              << to_text(mask) << "\nq " << q << " kv " << kv << " in [" << q0 << ", " << q1 << "] x [" << kv0
              << ", " << kv1 << "]";
    }
  }
  EXPECT_GT(full, 1000);  // it says something
  EXPECT_GT(empty, 1000);
}

TEST(ExpressionRanges, HoldEveryValue) {
  RandomExpressions random(2);
  for (int trial = 0; trial < 3000; ++trial) {
    const Expression score = random.score(static_cast<int>(random.between(2, 6)));
    const RandomData data(random, 20, 24);
    const int64_t q0 = random.below(20), kv0 = random.below(20), head = random.below(4);
    RangeEnvironment tile = data.tile(q0, q0 + 2, kv0, kv0 + 2, head, 1);
    tile.score = {-3, 2};
    const ranges::FloatRange range = range_of(score, tile).number;
    for (int i = 0; i < 20; ++i) {
      const double at = i == 0 ? -3 : i == 1 ? 2 : random.real(-3, 2);
      const double value = evaluate(score, data.at(q0 + random.below(3), kv0 + random.below(3), head, 1,
                                                   static_cast<float>(at)))
                               .number;
      const bool held =
          std::isnan(value) ? ranges::may_be_nan(range) : range.low <= value && value <= range.high;
      ASSERT_TRUE(held) << to_text(score) << " is " << value << " not in " << range.low << " to "
                        << range.high;
    }
  }
}

TEST(KeyRanges, HoldEveryVisibleKeyAndOnlyFullOnes) {
  RandomExpressions random(3);
  int limited = 0, with_full = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    random.with_floats = trial % 4 == 0;
    random.with_tensors = trial % 3 == 0;
    const Expression mask = random.mask(static_cast<int>(random.between(2, 5)));
    const KeyRule rule = key_rule(mask);
    const RandomData data(random, random.between(1, 30), random.between(1, 30));
    const int64_t q0 = random.below(data.seqlen_q) + data.seqlen_kv - data.seqlen_q,
                  q1 = q0 + random.below(6);
    const ranges::KeyRange range = ranges::limited_to(key_range(rule, data.tile(q0, q1, 0, 0, 1, 1)), 40);
    limited += range.begin > 0 || range.end < 40;
    with_full += range.full_begin < range.full_end;
    for (int64_t q = q0; q <= q1; ++q)
      for (int64_t kv = 0; kv < 40; ++kv) {
        const bool visible = sees(mask, data.at(q, kv, 1, 1));
        const bool skipped = kv < range.begin || kv >= range.end;
        const bool full = range.full_begin <= kv && kv < range.full_end;
        ASSERT_FALSE(visible && skipped) << to_text(mask) << " q " << q << " kv " << kv;
        ASSERT_FALSE(!visible && full) << to_text(mask) << " q " << q << " kv " << kv;
      }
  }
  EXPECT_GT(limited, 1000);
  EXPECT_GT(with_full, 300);
}

struct KnownMask {
  const char* text;
  bool closed;  // the closed form says all
};

class KnownMasks : public testing::Test {
 protected:
  static Declarations declared() {
    Declarations declarations;
    declarations.scalars = {
        {"window", ScalarType::integer}, {"prefix", ScalarType::integer}, {"chunk", ScalarType::integer}};
    declarations.tensors["document"] = parse_tensor_type("int32[kv]");
    return declarations;
  }
  static constexpr int64_t length = 192, tile = 16;
};

// What is not mixed is never called mixed, in tiles of 16 over all kinds of masks that models use.
TEST_F(KnownMasks, AreClassifiedTightly) {
  const KnownMask masks[] = {
      {"q >= kv", true},
      {"q - seqlen_kv + seqlen_q >= kv", true},
      {"q >= kv && q - kv < window", true},
      {"abs(q - kv) <= window", true},
      {"q >= kv || kv < prefix", true},
      {"kv < max(q + 1, prefix)", true},
      {"q / 40 == kv / 40", true},
      {"q >= kv && q / chunk == kv / chunk", true},
      {"q >= kv && document[q] == document[kv]", false},
      {"q >= kv && (q - kv < window || kv < 4)", false},
      {"q >= kv && (q - kv) % 3 == 0", false},
      {"q >= kv && q % 16 >= 8", false},
  };
  RandomExpressions random(4);
  RandomData data(random, length, length);
  data.declarations = declared();
  data.scalars = {{"window", Value::of(int64_t{37})},
                  {"prefix", Value::of(int64_t{50})},
                  {"chunk", Value::of(int64_t{48})}};
  data.tensors.clear();
  for (int64_t i = 0; i < length; ++i)
    data.tensors["document"].push_back(Value::of(int64_t{(i > 20) + (i > 64) + (i >= 112)}));
  for (const auto& [text, closed] : masks) {
    SCOPED_TRACE(text);
    const Expression mask = parse_mask(text, declared());
    const KeyRule rule = key_rule(mask);
    EXPECT_EQ(says_all(rule), closed);
    for (int64_t q0 = 0; q0 < length; q0 += tile) {
      const ranges::KeyRange range =
          ranges::limited_to(key_range(rule, data.tile(q0, q0 + tile - 1, 0, 0, 0, 0)), length);
      for (int64_t kv0 = 0; kv0 < length; kv0 += tile) {
        bool any = false, all = true;
        for (int64_t q = q0; q < q0 + tile; ++q)
          for (int64_t kv = kv0; kv < kv0 + tile; ++kv)
            (sees(mask, data.at(q, kv, 0, 0)) ? any : all) = sees(mask, data.at(q, kv, 0, 0));
        const TileState state =
            ranges::state_of(range_of(mask, data.tile(q0, q0 + tile - 1, kv0, kv0 + tile - 1, 0, 0)).truth);
        const TileState expected = all ? TileState::full : any ? TileState::mixed : TileState::empty;
        EXPECT_EQ(static_cast<int>(state), static_cast<int>(expected)) << "tile " << q0 << ", " << kv0;
        const bool visited = kv0 < range.end && kv0 + tile > range.begin;
        const bool full = kv0 >= range.full_begin && kv0 + tile <= range.full_end;
        if (closed) {
          EXPECT_EQ(visited, any) << "tile " << q0 << ", " << kv0;
          EXPECT_EQ(full, all) << "tile " << q0 << ", " << kv0;
        }
        EXPECT_TRUE(visited || !any);
        EXPECT_TRUE(all || !full);
      }
    }
  }
}

// A divisor that is no positive number at launch: nothing is skipped, nothing is wrong.
TEST_F(KnownMasks, AChunkOfZeroOrLessLimitsNothing) {
  const Expression mask = parse_mask("q / chunk == kv / chunk", declared());
  RandomExpressions random(5);
  RandomData data(random, length, length);
  for (int64_t chunk : {0, -1, -48}) {
    data.scalars["chunk"] = Value::of(chunk);
    const ranges::KeyRange range = key_range(key_rule(mask), data.tile(32, 47, 0, 0, 0, 0));
    EXPECT_LE(range.begin, 0);
    EXPECT_GE(range.end, length);
    EXPECT_GE(range.full_begin, range.full_end);
  }
}

TEST(KeyRanges, IntsThatWrapAreNoAlgebra) {
  const Expression mask = parse_mask("q - kv - 9223372036854775807 < 0", {});
  const KeyRule rule = key_rule(mask);
  EXPECT_TRUE(says_nothing(rule));
  const Environment at{.q = 0, .kv = 5};
  EXPECT_EQ(evaluate(mask, at).integer, 0);  // wraps: the interpreter and kernels agree
}

}  // namespace
}  // namespace tilewright
