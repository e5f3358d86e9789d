// Dropout: the mask itself, and kernels of both passes and families against references that draw the same.
#include <gtest/gtest.h>

#include <cmath>

#include "codegen/error.h"
#include "runtime/dropout.h"
#include "tests/support/backward_case.h"
#include "tests/support/backward_grid.h"
#include "tests/support/packed_case.h"
#include "tests/support/runtime_support.h"

namespace tilewright {
namespace {

using test::AttentionCase;

double kept_share(const std::vector<uint8_t>& keep) {
  double sum = 0;
  for (uint8_t kept : keep) sum += kept;
  return sum / static_cast<double>(keep.size());
}

// Five standard deviations of a binomial; places of one word depend on each other, which widens it by a few
// percent.
TEST(DropoutMask, IsDroppedWithTheRate) {
  for (double rate : {0.0, 0.001, 0.1, 0.5, 0.75, 0.999})
    for (uint64_t seed : {0, 1, 12345}) {
      const auto keep = dropout_mask({.rate = rate, .seed = seed}, {.queries = 512, .keys = 512});
      const double deviation = std::sqrt(rate * (1 - rate) / static_cast<double>(keep.size()));
      EXPECT_NEAR(kept_share(keep), 1 - rate, 5.2 * deviation) << rate << ", " << seed;
    }
}

// Places that are neighbours in a word, in a fragment and in the matrix: dropped together as often as by
// chance.
TEST(DropoutMask, PlacesAreIndependent) {
  constexpr int size = 512;
  constexpr double rate = 0.3;
  const auto keep = dropout_mask({.rate = rate, .seed = 7}, {.queries = size, .keys = size});
  for (auto [rows, keys] : std::vector<std::pair<int, int>>{{0, 1},
                                                            {0, 2},
                                                            {0, 4},
                                                            {0, 8},
                                                            {8, 0},
                                                            {8, 8},
                                                            {1, 0},
                                                            {2, 0},
                                                            {1, 1},
                                                            {16, 0},
                                                            {0, 16},
                                                            {16, 16}}) {
    int64_t both = 0, pairs = 0;
    for (int q = 0; q + rows < size; ++q)
      for (int k = 0; k + keys < size; ++k, ++pairs)
        both += !keep[q * size + k] && !keep[(q + rows) * size + k + keys];
    const double deviation = std::sqrt(rate * rate * (1 - rate * rate) / static_cast<double>(pairs));
    EXPECT_NEAR(static_cast<double>(both) / static_cast<double>(pairs), rate * rate, 5 * deviation + 2e-4)
        << rows << ", " << keys;
  }
}

TEST(DropoutMask, SeedOffsetAndHeadEachGiveAnother) {
  const Dropout dropout{.rate = 0.5, .seed = 1, .offset = 2};
  const DropoutRange range{.queries = 256, .keys = 256};
  const auto first = dropout_mask(dropout, range);
  EXPECT_EQ(first, dropout_mask(dropout, range));
  Dropout seed = dropout, offset = dropout, far = dropout;
  seed.seed = 2;
  offset.offset = 1;
  far.offset = uint64_t{1} << 63;
  DropoutRange head = range, rows = range, keys = range;
  head.head = 1;
  rows.query = 1 << 20;
  keys.key = 1 << 20;
  for (const auto& other :
       {dropout_mask(seed, range), dropout_mask(offset, range), dropout_mask(far, range),
        dropout_mask(dropout, head), dropout_mask(dropout, rows), dropout_mask(dropout, keys)}) {
    double equal = 0;
    for (size_t i = 0; i < first.size(); ++i) equal += first[i] == other[i];
    EXPECT_NEAR(equal / static_cast<double>(first.size()), 0.5, 5 * 0.5 / 256);
  }
}

TEST(DropoutMask, ARangeIsAPartOfTheWhole) {
  const Dropout dropout{.rate = 0.4, .seed = 9};
  const auto whole = dropout_mask(dropout, {.heads = 3, .queries = 40, .keys = 50});
  const auto part =
      dropout_mask(dropout, {.head = 1, .heads = 2, .query = 7, .queries = 20, .key = 11, .keys = 30});
  for (int h = 0; h < 2; ++h)
    for (int q = 0; q < 20; ++q)
      for (int k = 0; k < 30; ++k)
        ASSERT_EQ(part[(h * 20 + q) * 30 + k], whole[((h + 1) * 40 + q + 7) * 50 + k + 11]);
}

TEST(DropoutMask, WhatCannotBeIsRefused) {
  const auto message = [](Dropout dropout, DropoutRange range) {
    return test::message_of<Error>([&] { dropout_mask(dropout, range); });
  };
  EXPECT_NE(message({.rate = 1}, {}).find("rate is 1, expected at least 0 and below 1"), std::string::npos);
  EXPECT_NE(message({.rate = NAN}, {}).find("expected at least 0 and below 1"), std::string::npos);
  EXPECT_NE(message({}, {.query = -1, .queries = 5}).find("query -1"), std::string::npos);
  EXPECT_NE(message({}, {.heads = 1 << 20, .queries = 1 << 20, .keys = 1 << 20}).find("2^40"),
            std::string::npos);
}

class DropoutKernels : public testing::TestWithParam<std::string> {
 protected:
  Runtime runtime{test::simulator_options(3, GetParam())};
};

// Tiles of every shape draw the same places: narrow ones, odd numbers of fragments, consumers that share
// keys.
TEST_P(DropoutKernels, ForwardMatches) {
  const bool hopper = GetParam() == "sm_90a";
  for (const char* keys :
       {"head_dim: 64, mask: causal, gqa_ratio: 2, lse: true", "head_dim: 128, dtype: fp16",
        "head_dim: 40, mask: {window: [33, 7]}, softcap: 15, sinks: true", "head_dim: 256, mask: causal",
        "head_dim: 64, mask: \"kv <= q && (q - kv) % 3 != 1\"",
        "head_dim: 32, mask: {blocks: {m: 64, n: 64}}, layout: bhsd"})
    test::run_case(runtime, {.spec = "{dropout: true, " + std::string(keys) + "}",
                             .batch = 2,
                             .heads_kv = 2,
                             .seqlen_q = 70,
                             .seqlen_kv = 150});
  for (const char* blocks :
       {"{family: sm80, m: 16, n: 16, warps: 1}", "{family: sm80, m: 64, n: 48, warps: 2}",
        "{family: sm90, n: 48}", "{family: sm90, m: 64, n: 80}"})
    if (hopper || std::string(blocks).find("sm80") != std::string::npos)
      test::run_case(
          runtime,
          {.spec = "{dropout: true, head_dim: 16, mask: causal, blocks: " + std::string(blocks) + "}",
           .heads_kv = 3,
           .seqlen_q = 100,
           .seqlen_kv = 130});
}

// Places count within a sequence, and a sequence is a batch.
TEST_P(DropoutKernels, PackedMatches) {
  test::run_packed_case(
      runtime,
      {.spec = "{dropout: true, head_dim: 64, lse: true, mask: causal, gqa_ratio: 2, layout: packed}",
       .lengths_q = {19, 70, 0, 33},
       .lengths_kv = {40, 70, 31, 100}});
}

TEST_P(DropoutKernels, BackwardMatches) {
  for (const char* keys :
       {"head_dim: 64, mask: causal, gqa_ratio: 3, lse: true", "head_dim: 128, dtype: fp16",
        "head_dim: 40, mask: {window: [33, 7]}, softcap: 15", "head_dim: 256, mask: causal, softcap: 20",
        "head_dim: {qk: 72, v: 136}, layout: bhsd"})
    test::run_backward(runtime, {.spec = "{pass: backward, dropout: true, " + std::string(keys) + "}",
                                 .batch = 2,
                                 .heads_kv = 2,
                                 .seqlen_q = 70,
                                 .seqlen_kv = 150});
  for (const char* blocks :
       {"{family: sm80, m: 16, n: 16, warps: 1}", "{family: sm80, m: 48, n: 16, warps: 1}",
        "{family: sm80, m: 32, n: 64, warps: 4}", "{family: sm90, m: 128, order: late}",
        "{family: sm90, m: 64, order: plain}", "{family: sm90, n: 64, order: columns_plain}"})
    if (GetParam() == "sm_90a" || std::string(blocks).find("sm80") != std::string::npos)
      test::run_backward(runtime,
                         {.spec = "{pass: backward, dropout: true, head_dim: 16, mask: causal, blocks: " +
                                  std::string(blocks) + "}",
                          .heads_kv = 2,
                          .seqlen_q = 100,
                          .seqlen_kv = 130});
}

// Values of 1 and no mask: the output is the kept share of the probabilities, scaled; every key's gradient of
// V sums what rows keep of it.
TEST_P(DropoutKernels, TheMaskIsTheExportedOne) {
  AttentionCase attention = {.spec = "{dropout: true, head_dim: 16, dtype: fp16}",
                             .batch = 2,
                             .heads_kv = 2,
                             .seqlen_q = 40,
                             .seqlen_kv = 64,
                             .adjust = [](char tensor, int64_t, int64_t, int64_t, int64_t,
                                          double) { return tensor == 'v' || tensor == 'd' ? 1.0 : 0.0; },
                             .dropout = {.rate = 0.5, .seed = 77, .offset = 5}};
  const auto forward = test::run_case(runtime, attention);
  attention.spec = "{pass: backward, dropout: true, head_dim: 16, dtype: fp16}";
  const auto backward = test::run_backward(runtime, attention);
  const auto keep = dropout_mask(attention.dropout, {.heads = 4, .queries = 40, .keys = 64});
  for (int b = 0; b < 2; ++b)
    for (int h = 0; h < 2; ++h) {
      const uint8_t* head = &keep[(b * 2 + h) * 40 * 64];
      for (int q = 0; q < 40; ++q) {
        int kept = 0;
        for (int k = 0; k < 64; ++k) kept += head[q * 64 + k];
        EXPECT_EQ(forward.out_at(b, q, h, 0), kept / 32.0);
      }
      for (int k = 0; k < 64; ++k) {
        int kept = 0;
        for (int q = 0; q < 40; ++q) kept += head[q * 64 + k];
        EXPECT_EQ(backward.dv.get(((b * 64 + k) * 2 + h) * 16), kept / 32.0);
      }
    }
}

TEST_P(DropoutKernels, RateZeroIsNoDropout) {
  AttentionCase attention = {.spec = "{head_dim: 32, mask: causal, lse: true, blocks: {m: 64, n: 64}}",
                             .heads_kv = 2,
                             .seqlen_q = 70,
                             .seqlen_kv = 90,
                             .dropout = {.rate = 0, .seed = 5}};
  const auto without = test::run_case(runtime, attention);
  attention.spec = "{head_dim: 32, mask: causal, lse: true, dropout: true, blocks: {m: 64, n: 64}}";
  const auto with = test::run_case(runtime, attention);
  EXPECT_EQ(without.out.live_bytes(), with.out.live_bytes());
  EXPECT_EQ(without.lse.live_bytes(), with.lse.live_bytes());
}

INSTANTIATE_TEST_SUITE_P(Simulator, DropoutKernels, testing::ValuesIn(test::backward_targets()),
                         [](const auto& info) { return info.param; });

using u32 = unsigned int;
using u64 = unsigned long long;
#define __device__
#define __forceinline__ inline
#include "templates/dropout_numbers.cuh"
#undef __device__
#undef __forceinline__

// The vectors that the authors of Philox publish for ten rounds.
TEST(Dropout, IsPhilox) {
  const struct {
    u32 counter[4], key[2], result[4];
  } vectors[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const auto& vector : vectors) {
    u32 counter[4], keys[20];
    for (int i = 0; i < 4; ++i) counter[i] = vector.counter[i];
    for (u32 round = 0; round < 10; ++round) {
      keys[2 * round] = vector.key[0] + round * 0x9e3779b9u;
      keys[2 * round + 1] = vector.key[1] + round * 0xbb67ae85u;
    }
    philox(counter, keys);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(counter[i], vector.result[i]);
  }
  const DropoutParameters parameters = dropout_parameters(Dropout{.rate = 0.25});
  EXPECT_EQ(parameters.threshold, 0x40000000u);
  EXPECT_EQ(parameters.keys[2] - parameters.keys[0], 0x9e3779b9u);
  EXPECT_EQ(parameters.keys[19] - parameters.keys[17], 0xbb67ae85u);
}

TEST(Dropout, ArgumentsAreChecked) {
  const AttentionSpec with = parse_spec("{head_dim: 16, dropout: true}", "spec");
  const AttentionSpec without = parse_spec("{head_dim: 16}", "spec");
  const auto message = [](const AttentionSpec& spec, const std::optional<Dropout>& dropout) {
    return test::message_of<Error>([&] { check_dropout(spec, dropout); });
  };
  EXPECT_EQ(message(with, Dropout{.rate = 0.1}), "");
  EXPECT_EQ(message(without, std::nullopt), "");
  EXPECT_NE(message(with, std::nullopt).find("is missing: the spec says `dropout: true`"), std::string::npos);
  EXPECT_NE(message(without, Dropout{}).find("does not say `dropout: true`"), std::string::npos);
  for (double rate : {-0.1, 1.0, 2.0, static_cast<double>(NAN)})
    EXPECT_NE(message(with, Dropout{.rate = rate}).find("expected at least 0 and below 1"),
              std::string::npos);
}

}  // namespace
}  // namespace tilewright
