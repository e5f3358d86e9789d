// Real backward kernels with one defect seeded into their text: the simulator or the comparison must find it.
#include <algorithm>
#include <ostream>

#include "tests/support/backward_source.h"

namespace tilewright {
namespace {

using test::launch_source;
using test::source_of;

struct Defect {
  const char* name;
  const char* text;
  const char* instead;
  const char* fault;  // of the simulator; "": a wrong answer
};

void PrintTo(const Defect& defect, std::ostream* out) {
  *out << defect.name;
}

std::string outcome(const AttentionSpec& spec, const Target& target, const Source& source, uint64_t seed,
                    int64_t rows = 150, int64_t keys = 130) {
  return launch_source(spec, target, source, seed, rows, keys).fault;
}

const Target& sm_80 = target_by_name("sm_80");

AttentionSpec spec_of(const char* more) {
  return parse_spec(
      std::string("{pass: backward, head_dim: 32, mask: causal, gqa_ratio: 2, blocks: {m: 64, n: 64, "
                  "warps: 4, stages: 2}") +
          more + "}",
      "spec");
}

TEST(BackwardText, IsSoundAsItIs) {
  for (const char* more : {"", ", deterministic: true", ", softcap: 20"})
    for (uint64_t seed = 0; seed < 3; ++seed)
      EXPECT_EQ(outcome(spec_of(more), sm_80, source_of(spec_of(more), sm_80), seed), "") << more;
}

class BackwardDefect : public testing::TestWithParam<Defect> {};

TEST_P(BackwardDefect, IsFound) {
  Source source = source_of(spec_of(""), sm_80);
  const size_t at = source.text.find(GetParam().text);
  ASSERT_NE(at, std::string::npos) << "the text is not there";
  source.text.replace(at, std::string(GetParam().text).size(), GetParam().instead);
  // Copies as late as allowed, and at once.
  std::string all;
  bool found = false;
  for (uint64_t seed : {1, 0}) {
    const std::string what = outcome(spec_of(""), sm_80, source, seed);
    found |= *GetParam().fault ? what.find(GetParam().fault) != std::string::npos : !what.empty();
    all += what + "\n";
  }
  EXPECT_TRUE(found) << all;
}

INSTANTIATE_TEST_SUITE_P(
    Sm80, BackwardDefect,
    testing::Values(
        Defect{"no_barrier_before_products", "block_barrier();  // P and dS are there for all", "", ""},
        Defect{"no_barrier_between_steps", "block_barrier();  // Q and dO are there for all", "//", ""},
        Defect{"no_wait_for_copies", "    copy_async_wait<0>();\n    block_barrier();",
               "    block_barrier();", ""},
        Defect{"one_stage_for_two", "stage ^= 1", "stage ^= 0", ""},
        Defect{"sums_not_zeroed", "global_store_16(sums + i, 0, 0, 0, 0)", "(void)sums", ""},
        Defect{"row_term_added", "(gradients[m][n][e] - rows.term", "(gradients[m][n][e] + rows.term", ""},
        Defect{"mask_left_out", "n_tile < seen.full_begin || n_tile >= seen.full_end", "false", ""},
        Defect{"same_head_again", "return {place.head_index + 1, tiles.begin}",
               "return {place.head_index, tiles.begin}", ""},
        Defect{"reads_beyond_the_end", "queries - row;\n  const TensorParameters",
               "queries;\n  const TensorParameters", ""}),
    [](const auto& info) { return std::string(info.param.name); });

// --- the sm90 family

// One for each way of the products: dQ by bulk sums, and by columns. In the third, tiles of keys that no
// query sees follow one another.
struct HopperProblem {
  const char* spec;
  int64_t rows, keys;
};
const HopperProblem hopper_problems[] = {
    {"{pass: backward, head_dim: 64, mask: causal, gqa_ratio: 2}", 330, 560},
    {"{pass: backward, head_dim: 136, mask: causal, gqa_ratio: 2}", 330, 560},
    {"{pass: backward, head_dim: 64, mask: causal_top_left, gqa_ratio: 2}", 70, 1800}};

void PrintTo(const HopperProblem& problem, std::ostream* out) {
  *out << problem.spec;
}

// Calls without which every answer stays right in the orders that are the default.
const char* const not_for_the_answer[] = {
    "named_barrier_wait<256>(5 + me.group)",                 // turns: for speed, ds_full orders the same
    "barrier_wait(layout.ds_full((buffer ^ 1)), last_use)",  // the turns order the same
    "warp_barrier()",  // what follows must be met by a converged warp (9.7.13.1)
    // Q of a stage is released after dO, and waited for before it.
    "barrier_wait(layout.gradient_empty(place.stage), place.parity ^ 1)",
    "warpgroup_wait<first ? 0 : 1>()",
    // Of two buffers: each group has waited for the other's step in between.
    "barrier_wait(layout.ds_empty(buffer), use ^ 1)",
    "barrier_wait(layout.ds_empty(next_buffer), next_use ^ 1)",
};

class BackwardHopperCall : public testing::TestWithParam<HopperProblem> {};

// Each other wait, arrival and fence: without it some seed shows a fault or a wrong answer.
TEST_P(BackwardHopperCall, CannotBeLeftOut) {
  const auto [text_of_spec, rows, keys] = GetParam();
  const Target& target = target_by_name("sm_90a");
  const AttentionSpec spec = parse_spec(text_of_spec, "spec");
  const Source whole = source_of(spec, target);
  for (uint64_t seed = 0; seed < 3; ++seed) ASSERT_EQ(outcome(spec, target, whole, seed, rows, keys), "");
  const bool empty_tiles = keys > 1000;  // there, only what the tiles pass through
  int calls = 0;
  for (const std::string call :
       {"barrier_wait(", "release(", "barrier_arrive(", "fence_async_shared(", "named_barrier_wait<",
        "named_barrier_arrive<", "block_barrier(", "bulk_commit(", "bulk_wait_reads<", "warpgroup_wait<"}) {
    for (size_t at = 0; (at = whole.text.find(call, at)) != std::string::npos; ++at) {
      const size_t line = whole.text.rfind('\n', at) + 1, end = whole.text.find(';', at);
      const std::string before = whole.text.substr(line, at - line),
                        statement = whole.text.substr(at, end - at);
      const bool is_statement = before.find_first_not_of(' ') == std::string::npos || before.ends_with(") ");
      if (!is_statement || statement.find("simulator->") != std::string::npos ||
          before.find("//") != std::string::npos)
        continue;
      const bool of_tiles = statement.find("tile_") != std::string::npos;
      if (of_tiles != empty_tiles ||
          std::count(std::begin(not_for_the_answer), std::end(not_for_the_answer), statement))
        continue;
      Source source = whole;
      source.text.erase(at, end - at);
      ++calls;
      bool found = false;
      for (uint64_t seed = 0; seed < 4 && !found; ++seed)
        found = !outcome(spec, target, source, seed, rows, keys).empty();
      EXPECT_TRUE(found) << before << statement;
    }
  }
  EXPECT_GE(calls, empty_tiles ? 4 : 20);
}

INSTANTIATE_TEST_SUITE_P(Kernel, BackwardHopperCall, testing::ValuesIn(hopper_problems));

}  // namespace
}  // namespace tilewright
