// Layout packed: sequences of different lengths one behind the other.
#include <cmath>

#include "tests/support/packed_case.h"

namespace tilewright {
namespace {

using test::PackedCase;
using test::run_packed_case;

constexpr double infinity = std::numeric_limits<double>::infinity();

class ForwardPacked : public testing::TestWithParam<const char*> {
 protected:
  Runtime early{test::simulator_options(0, GetParam())}, late{test::simulator_options(1, GetParam())},
      mixed{test::simulator_options(7, GetParam())};
};

TEST_P(ForwardPacked, A2EmptySequences) {
  const auto result =
      run_packed_case(mixed, {.spec = "{head_dim: 64, lse: true, mask: causal, layout: packed}",
                              .lengths_q = {19, 0, 33},
                              .lengths_kv = {20, 31, 0}});
  for (int row = 19; row < 52; ++row) {
    for (int c = 0; c < 64; ++c) EXPECT_EQ(result.out_at(row, 0, c), 0.0);
    EXPECT_EQ(result.lse_at(0, row), -infinity);
  }
}

TEST_P(ForwardPacked, A5RowsBehindTheLastSequence) {
  for (double filler : {std::nan(""), infinity})
    run_packed_case(mixed, {.spec = "{head_dim: 64, lse: true, mask: causal, layout: packed}",
                            .lengths_q = {36},
                            .lengths_kv = {36},
                            .rows_behind = 4,
                            .filler = filler});
}

// What one sequence holds must not reach another, even where one tile of keys covers both.
TEST_P(ForwardPacked, NeighboursMayHoldAnything) {
  for (double value : {std::nan(""), infinity, -infinity}) {
    PackedCase clean = {.spec = "{head_dim: 80, lse: true, layout: packed, gqa_ratio: 2}",
                        .lengths_q = {30, 17, 70},
                        .lengths_kv = {45, 9, 100}};
    PackedCase dirty = clean;
    // Sequence 1 is given whole to the reference, so its rows are left out by giving it no queries.
    dirty.lengths_q = clean.lengths_q = {30, 0, 70};
    dirty.adjust = [value](char tensor, int64_t row, int64_t, int64_t, double element) {
      return tensor != 'q' && row >= 45 && row < 54 ? value : element;
    };
    const auto a = run_packed_case(mixed, clean), b = run_packed_case(mixed, dirty);
    EXPECT_EQ(a.out.live_bytes(), b.out.live_bytes()) << value;
    EXPECT_EQ(a.lse.live_bytes(), b.lse.live_bytes()) << value;
  }
}

TEST_P(ForwardPacked, F3NothingIsCutOff) {
  run_packed_case(mixed, {.spec = "{head_dim: 32, lse: true, mask: causal, layout: packed}",
                          .lengths_q = {12, 30},
                          .lengths_kv = {12, 30}});
}

TEST_P(ForwardPacked, MasksRatiosAndScores) {
  const std::vector<int> q = {130, 1, 64, 7, 0, 200}, kv = {140, 65, 64, 0, 20, 90};
  int turn = 0;
  for (const char* rest :
       {"mask: none", "mask: causal, gqa_ratio: 5", "mask: causal_top_left, dtype: fp16",
        "mask: {window: [20, 0]}, softcap: 15", "mask: {window: [33, 7]}, gqa_ratio: 2",
        "softmax_scale: launch", "mask: {window: [40, -8]}, blocks: {m: 64, n: 16, stages: 2}",
        "mask: causal, blocks: {n: 48, stages: 3}"}) {
    Runtime* runtimes[] = {&early, &late, &mixed};
    run_packed_case(*runtimes[turn++ % 3],
                    {.spec = std::string("{head_dim: 64, lse: true, layout: packed, ") + rest + "}",
                     .lengths_q = q,
                     .lengths_kv = kv,
                     .rows_behind = 3,
                     .seed = static_cast<uint64_t>(turn)});
  }
}

TEST_P(ForwardPacked, HeadDims) {
  for (const char* dims : {"16", "40", "128", "{qk: 192, v: 128}", "256"})
    run_packed_case(mixed,
                    {.spec = std::string("{lse: true, layout: packed, mask: causal, head_dim: ") + dims + "}",
                     .lengths_q = {70, 5},
                     .lengths_kv = {33, 90},
                     .rows_behind = 1});
}

// Kernels must find the tiles of many sequences, in the order of their lengths and, beyond 1024, of the
// batch.
TEST_P(ForwardPacked, ManySequences) {
  for (int count : {33, 70, 1100}) {
    std::vector<int> q, kv;
    for (int i = 0; i < count; ++i) {
      q.push_back(i * 7 % 5 * (i % 11 == 0 ? 30 : 1));
      kv.push_back(i * 5 % 7 * (i % 13 == 0 ? 60 : 1));
    }
    run_packed_case(early, {.spec = "{head_dim: 8, lse: true, mask: causal, layout: packed}",
                            .lengths_q = q,
                            .lengths_kv = kv,
                            .heads_kv = count == 1100 ? 1 : 3});
  }
}

TEST_P(ForwardPacked, UsedPartsOfSequences) {
  run_packed_case(mixed, {.spec = "{head_dim: 32, lse: true, mask: causal, layout: packed}",
                          .lengths_q = {40, 70, 9},
                          .lengths_kv = {50, 100, 30},
                          .used_q = {33, 70, 0},
                          .used_kv = {20, 65, 31}});
  run_packed_case(late, {.spec = "{head_dim: 32, lse: true, layout: packed}",
                         .lengths_q = {40, 70},
                         .lengths_kv = {50, 100},
                         .used_kv = {-5, 3}});
}

// Wrong numbers on the device: nothing outside of the tensors is read or written (the simulator would say
// so).
TEST_P(ForwardPacked, NumbersOutOfRangeStayInside) {
  const std::string spec = "{head_dim: 32, lse: true, layout: packed}";
  run_packed_case(mixed, {.spec = spec,
                          .lengths_q = {40, 30},
                          .lengths_kv = {40, 30},
                          .starts_q = {0, 40, 1000},
                          .starts_kv = {-7, 2000000000, INT32_MAX}});
  run_packed_case(mixed, {.spec = spec,
                          .lengths_q = {40, 30},
                          .lengths_kv = {40, 30},
                          .starts_q = {0, 40, INT32_MIN},
                          .starts_kv = {60, 20, 90}});
}

TEST_P(ForwardPacked, NoSequencesAndNoRows) {
  const std::string spec = "{head_dim: 32, lse: true, layout: packed}";
  run_packed_case(mixed, {.spec = spec, .rows_behind = 5});
  run_packed_case(mixed, {.spec = spec, .lengths_q = {0, 0}, .lengths_kv = {4, 0}});
  run_packed_case(mixed, {.spec = spec, .lengths_q = {3, 2}, .lengths_kv = {0, 0}});
}

TEST_P(ForwardPacked, C7SinksOfPackedSequences) {
  const auto result =
      run_packed_case(mixed, {.spec = "{head_dim: 64, lse: true, layout: packed, sinks: true}",
                              .lengths_q = {5, 20},
                              .lengths_kv = {0, 20},
                              .heads_kv = 2,
                              .sinks = {0.5, 100}});
  for (int row = 0; row < 5; ++row)
    for (int head = 0; head < 2; ++head) {
      for (int c = 0; c < 64; ++c) EXPECT_EQ(result.out_at(row, head, c), 0.0);
      EXPECT_NEAR(result.lse_at(head, row), head ? 100 : 0.5, 1e-5);
    }
}

INSTANTIATE_TEST_SUITE_P(Simulator, ForwardPacked, testing::Values("sm_80", "sm_90a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tilewright
