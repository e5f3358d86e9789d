// `deterministic: true`: the same bits whatever the order in which blocks, copies and sums run, and defects
// that would change them now and then.
#include <ostream>
#include <thread>

#include "tests/support/backward_source.h"

namespace tilewright {
namespace {

using test::launch_source;
using test::source_of;
using test::SourceOutcome;

struct Problem {
  const char* name;
  const char* keys;
  int64_t rows, seqlen_kv;
};

void PrintTo(const Problem& problem, std::ostream* out) {
  *out << problem.keys;
}

AttentionSpec spec_of(const std::string& keys) {
  return parse_spec("{pass: backward, deterministic: true, " + keys + "}", "spec");
}

class Deterministic : public testing::TestWithParam<std::tuple<Problem, const char*>> {};

TEST_P(Deterministic, SameBitsInEveryOrder) {
  const auto& [problem, target_name] = GetParam();
  const Target& target = target_by_name(target_name);
  const AttentionSpec spec = spec_of(problem.keys);
  EXPECT_EQ(choose_schedule(spec, target).family, target.wgmma ? Family::sm90 : Family::sm80);
  const Source source = source_of(spec, target);
  const SourceOutcome first = launch_source(spec, target, source, 0, problem.rows, problem.seqlen_kv, 7);
  EXPECT_EQ(first.fault, "");
  for (uint64_t seed = 1; seed < 5; ++seed) {
    const SourceOutcome other = launch_source(spec, target, source, seed, problem.rows, problem.seqlen_kv, 7);
    EXPECT_EQ(other.fault, "") << "seed " << seed;
    EXPECT_TRUE(other.bits == first.bits) << "seed " << seed << ": other bits";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Simulator, Deterministic,
    testing::Combine(
        testing::Values(Problem{"full", "head_dim: 32", 150, 300},
                        Problem{"causal_group", "head_dim: 64, mask: causal, gqa_ratio: 2", 190, 290},
                        Problem{"fewer_keys", "head_dim: 16, mask: causal", 300, 140},
                        Problem{"top_left", "head_dim: 16, mask: causal_top_left", 140, 300},
                        Problem{"window", "head_dim: 16, mask: {window: [90, -10]}, gqa_ratio: 2", 330, 400},
                        Problem{"left_alone", "head_dim: 16, mask: {window: [90, inf]}", 270, 300},
                        Problem{"expression", "head_dim: 16, mask: 'q >= kv && kv % 100 > 30'", 260, 330},
                        Problem{"by_head", "head_dim: 16, gqa_ratio: 2, mask: 'q - kv > 70 * head'", 190,
                                250},
                        Problem{"columns", "head_dim: 136, mask: causal, gqa_ratio: 2", 150, 200}),
        testing::Values("sm_80", "sm_90a")),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param);
    });

// --- defects

struct Defect {
  const char* name;
  const char* keys;
  const char* target;
  const char* text;
  const char* instead;
};

void PrintTo(const Defect& defect, std::ostream* out) {
  *out << defect.name;
}

class DeterministicDefect : public testing::TestWithParam<Defect> {};

// Some order gives other bits, or the simulator sees a fault. Where a wait is missing, the tile of the first
// turn is held up by the next one's, so that the order is another whatever the machine does.
TEST_P(DeterministicDefect, IsFound) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core runs block after block";
  const Defect& defect = GetParam();
  const Target& target = target_by_name(defect.target);
  const AttentionSpec spec = spec_of(defect.keys);
  Source source = source_of(spec, target);
  const std::string sound = launch_source(spec, target, source, 0, 300, 300, 7).bits;
  const size_t at = source.text.find(defect.text);
  ASSERT_NE(at, std::string::npos) << "the text is not there";
  source.text.replace(at, std::string(defect.text).size(), defect.instead);
  bool found = false;
  for (uint64_t seed = 0; seed < 20 && !found; ++seed)
    found = launch_source(spec, target, source, seed, 300, 300, 7).bits != sound;
  EXPECT_TRUE(found);
}

constexpr const char* by_keys = "head_dim: 16, gqa_ratio: 2";
constexpr const char* by_columns = "head_dim: 136";
constexpr const char* wait = "global_wait_for_turn(turns, turn)";
constexpr const char* no_wait = "global_wait_for_turn(turns, turn == 1 ? 2 : 0)";

INSTANTIATE_TEST_SUITE_P(Simulator, DeterministicDefect,
                         testing::Values(Defect{"no_wait_sm80", by_keys, "sm_80", "seen.end - 1 - n_tile);",
                                                "seen.end - 2 == n_tile ? 2 : 0);"},
                                         Defect{"no_wait_by_keys", by_keys, "sm_90a", wait, no_wait},
                                         Defect{"no_wait_by_columns", by_columns, "sm_90a", wait, no_wait},
                                         Defect{"turn_ends_before_the_sums", by_keys, "sm_90a",
                                                "if (leader) bulk_wait<0>();", ";"},
                                         Defect{"turn_ends_at_once", by_columns, "sm_90a",
                                                "named_barrier_wait<160>(dq_full(group));", ";"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tilewright
