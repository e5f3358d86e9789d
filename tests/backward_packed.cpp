// The backward pass of layout packed: sequences of different lengths one behind the other.
#include <cmath>

#include "tests/support/packed_backward_case.h"

namespace tilewright {
namespace {

using test::PackedCase;
using test::run_packed_backward;

class BackwardPacked : public testing::TestWithParam<const char*> {
 protected:
  Runtime early{test::simulator_options(0, GetParam())}, late{test::simulator_options(1, GetParam())},
      mixed{test::simulator_options(7, GetParam())};
};

TEST_P(BackwardPacked, A4KeysOfSequencesWithoutQueries) {
  const auto result = run_packed_backward(mixed, {.spec = "{pass: backward, head_dim: 128, layout: packed}",
                                                  .lengths_q = {0, 0, 23},
                                                  .lengths_kv = {0, 1, 45},
                                                  .heads_kv = 4});
  for (int64_t i = 0; i < 4 * 128; ++i) {
    ASSERT_EQ(result.dk.get(i), 0.0);
    ASSERT_EQ(result.dv.get(i), 0.0);
  }
}

TEST_P(BackwardPacked, F4ManyLengths) {
  const std::vector<int> lengths = {7, 1, 33, 2, 19, 64, 65, 3, 128};
  for (const char* keys : {"mask: none", "mask: causal, lse: true"})
    run_packed_backward(late,
                        {.spec = std::string("{pass: backward, layout: packed, head_dim: 64, ") + keys + "}",
                         .lengths_q = lengths,
                         .lengths_kv = lengths,
                         .rows_behind = 5});
}

// One key that every query sees: P is 1 and dS exactly 0, and dV the sum of the gradients.
TEST_P(BackwardPacked, G1OneKey) {
  const auto eighths = [](char, int64_t row, int64_t, int64_t column, double) {
    return static_cast<double>((row * 5 + column * 3) % 17 - 8) / 8;
  };
  const auto result = run_packed_backward(
      mixed, {.spec = "{pass: backward, head_dim: 32, dtype: fp16, mask: causal, layout: packed}",
              .lengths_q = {19, 9, 37},
              .lengths_kv = {1, 1, 1},
              .adjust = eighths});
  for (int64_t i = 0; i < result.dq.elements(); ++i) ASSERT_EQ(result.dq.get(i), 0.0);
  for (int64_t i = 0; i < result.dk.elements(); ++i) ASSERT_EQ(result.dk.get(i), 0.0);
}

TEST_P(BackwardPacked, MasksRatiosAndScores) {
  const std::vector<int> q = {130, 1, 64, 7, 0, 150}, kv = {140, 65, 64, 0, 20, 90};
  int turn = 0;
  for (const char* rest :
       {"mask: none, gqa_ratio: 2, sinks: true", "mask: causal, gqa_ratio: 3, lse: true",
        "mask: causal_top_left, dtype: fp16", "mask: {window: [20, 0]}, softcap: 15",
        "mask: {window: [33, 7]}, gqa_ratio: 2", "softmax_scale: launch, mask: {window: [40, -8]}"}) {
    Runtime* runtimes[] = {&early, &late, &mixed};
    run_packed_backward(*runtimes[turn++ % 3],
                        {.spec = std::string("{pass: backward, head_dim: 32, layout: packed, ") + rest + "}",
                         .lengths_q = q,
                         .lengths_kv = kv,
                         .rows_behind = 3,
                         .seed = static_cast<uint64_t>(turn)});
  }
}

// Each sequence drops as its number says.
TEST_P(BackwardPacked, DropoutSinksAndDeterminism) {
  for (const char* rest : {"mask: causal, gqa_ratio: 2", "sinks: true, lse: true",
                           "deterministic: true, mask: {window: [33, 7]}"})
    run_packed_backward(
        mixed,
        {.spec = std::string("{pass: backward, dropout: true, head_dim: 40, layout: packed, ") + rest + "}",
         .lengths_q = {70, 0, 33, 5},
         .lengths_kv = {90, 20, 33, 0},
         .rows_behind = 2,
         .heads_kv = 2});
}

TEST_P(BackwardPacked, Expressions) {
  int turn = 0;
  for (const char* rest :
       {"alibi: true, mask: causal, gqa_ratio: 2", "bias: true, softcap: 15",
        "mask: 'q >= kv || kv < prefix[batch]', tensors: {prefix: 'int32[batch]'}",
        "mask: 'q >= kv && (q - kv < 24 || kv < 4)', gqa_ratio: 2, deterministic: true",
        "mask: 'document[batch, q] == document[batch, kv] && q >= kv', tensors: {document: 'int32[batch, "
        "kv]'}, "
        "deterministic: true",
        "mask: 'kv % 3 != head && kv < used[batch]', gqa_ratio: 2, score: 'score / (1 + abs(score)) * 3', "
        "tensors: {used: 'int32[batch]'}, lse: true",
        "score: 'score + extra[batch, head, q, kv]', mask: {window: [33, 7]}, tensors: {extra: "
        "'float32[batch, head, q, kv]'}, dropout: true"}) {
    Runtime* runtimes[] = {&early, &late, &mixed};
    PackedCase packed = {
        .spec =
            "{pass: backward, head_dim: 32, layout: packed, blocks: {family: sm80, m: 16, n: 16, warps: "
            "1}, " +
            std::string(rest) + "}",
        .lengths_q = {130, 1, 64, 7, 0, 150},
        .lengths_kv = {140, 65, 64, 0, 20, 90},
        .rows_behind = 3,
        .tensors = {
            {"prefix", {{6}, [](const auto& i) { return i[0] % 2 ? 30 : 5; }}},
            {"used", {{6}, [](const auto& i) { return 11 + 23 * i[0]; }}},
            {"document", {{6, 140}, [](const auto& i) { return (i[1] + 9 * i[0]) / 25; }}},
            {"bias", {{1, 1, 150, 140}, [](const auto& i) { return std::cos(i[2] * 3 - i[3] * 5); }}},
            {"extra", {{6, 1, 150, 140}, [](const auto& i) { return std::sin(i[0] + i[2] * 7 + i[3]); }}}}};
    run_packed_backward(*runtimes[turn++ % 3], packed);
    packed.used_q = {100, 1, 0, 7, 0, 140}, packed.used_kv = {90, 65, 64, 0, 20, 70};
    packed.filler = std::numeric_limits<double>::infinity();
    run_packed_backward(*runtimes[turn % 3], packed);
  }
}

// More tiles of keys than a warp looks at at once, in two sequences.
TEST_P(BackwardPacked, LongWalks) {
  run_packed_backward(
      mixed, {.spec = "{pass: backward, head_dim: 16, layout: packed, deterministic: true, blocks: {family: "
                      "sm80, m: 16, n: 16, warps: 1}, mask: 'q >= kv && (q - kv < 20 || kv / 16 % 9 == 0)'}",
              .lengths_q = {40, 90},
              .lengths_kv = {530, 600}});
}

TEST_P(BackwardPacked, HeadDims) {
  for (const char* dims : {"16", "40", "128", "{qk: 96, v: 128}", "256"})
    run_packed_backward(
        mixed, {.spec = std::string("{pass: backward, layout: packed, mask: causal, head_dim: ") + dims + "}",
                .lengths_q = {70, 5},
                .lengths_kv = {33, 90},
                .rows_behind = 1});
}

// What one sequence holds must not reach another, even where one tile covers both: not by a product with 0
// either.
TEST_P(BackwardPacked, NeighboursMayHoldAnything) {
  for (const char* keys :
       {"head_dim: 80, gqa_ratio: 2", "head_dim: 64, mask: causal, softcap: 20", "head_dim: 256"})
    for (double value : {std::nan(""), std::numeric_limits<double>::infinity()})
      run_packed_backward(late, {.spec = std::string("{pass: backward, layout: packed, ") + keys + "}",
                                 .lengths_q = {45, 70, 9},
                                 .lengths_kv = {45, 100, 30},
                                 .used_q = {30, 70, 9},
                                 .used_kv = {40, 77, 0},
                                 .rows_behind = 4,
                                 .filler = value});
}

TEST_P(BackwardPacked, ManySequences) {
  std::vector<int> q, kv;
  for (int i = 0; i < 1100; ++i) {
    q.push_back(i % 3 == 0 ? i % 5 : 0);
    kv.push_back(i % 3 == 1 ? 0 : i % 4);
  }
  run_packed_backward(early, {.spec = "{pass: backward, head_dim: 8, mask: causal, layout: packed}",
                              .lengths_q = q,
                              .lengths_kv = kv});
}

// Wrong numbers on the device: nothing outside of the tensors is read or written.
TEST_P(BackwardPacked, NumbersOutOfRangeStayInside) {
  run_packed_backward(mixed, {.spec = "{pass: backward, head_dim: 32, layout: packed}",
                              .lengths_q = {40, 30},
                              .lengths_kv = {40, 30},
                              .starts_q = {0, 40, 1000},
                              .starts_kv = {-7, 50, INT32_MAX}});
}

TEST_P(BackwardPacked, NoSequencesAndNoRows) {
  for (const char* more : {"", ", deterministic: true"}) {
    const std::string spec = std::string("{pass: backward, head_dim: 32, layout: packed") + more + "}";
    run_packed_backward(mixed, {.spec = spec, .rows_behind = 5});
    run_packed_backward(mixed, {.spec = spec, .lengths_q = {0, 0}, .lengths_kv = {4, 0}});
    run_packed_backward(mixed, {.spec = spec, .lengths_q = {3, 2}, .lengths_kv = {0, 0}});
  }
}

TEST_P(BackwardPacked, DeterministicBits) {
  for (const char* mask : {"causal", "'q >= kv && (q - kv < 40 || kv < 4)'"}) {
    const PackedCase packed = {
        .spec =
            "{pass: backward, head_dim: 64, gqa_ratio: 2, layout: packed, deterministic: true, "
            "blocks: {family: sm80, m: 32, n: 32, warps: 4}, mask: " +
            std::string(mask) + "}",
        .lengths_q = {70, 3, 96},
        .lengths_kv = {96, 0, 96}};
    const auto first = run_packed_backward(mixed, packed, 3);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Runtime other(test::simulator_options(seed, GetParam()));
      const auto again = run_packed_backward(other, packed);
      EXPECT_EQ(first.dq.live_bytes(), again.dq.live_bytes()) << mask;
      EXPECT_EQ(first.dk.live_bytes(), again.dk.live_bytes()) << mask;
    }
  }
}

TEST(BackwardPackedWorkspace, IsLinearInRowsAndSequences) {
  const AttentionSpec spec = parse_spec("{pass: backward, head_dim: 128, layout: packed}", "spec");
  const Schedule schedule = choose_schedule(spec, target_by_name("sm_80"));
  const auto size = [&](int64_t sequences, int64_t rows) {
    return static_cast<double>(workspace_size(spec, schedule, {sequences, 16, rows, rows}));
  };
  EXPECT_NEAR(size(8, 65536) / size(4, 32768), 2.0, 0.01);
  // A short last tile each, whatever the lengths.
  EXPECT_LT(size(1024, 65536) / size(1, 65536), 2.1);
}

INSTANTIATE_TEST_SUITE_P(Simulator, BackwardPacked, testing::Values("sm_80", "sm_90a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tilewright
