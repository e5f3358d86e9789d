// Real sm90 kernels: right as they are, and with one defect seeded into their text the simulator must find
// it.
#include "tests/simulator_hopper_kernel.h"

#include <gtest/gtest.h>

#include <ostream>

namespace tilewright {
namespace {

using test::HopperCase;
using test::HopperProblem;

// Several tiles a block, several tiles of keys a tile: every ring goes round more than once.
const HopperCase ping_pong = {
    "{head_dim: 64, blocks: {m: 128, n: 32, stages: 2, warps: 12, ping_pong: true}}", 2, 300, 150};
const HopperCase plain = {
    "{head_dim: 72, dtype: fp16, blocks: {m: 128, n: 48, stages: 1, warps: 12, ping_pong: false}}", 2, 300,
    150};
// Rows that see no key, too.
const HopperCase one_consumer = {
    "{head_dim: {qk: 128, v: 80}, mask: causal, blocks: {m: 64, n: 16, stages: 3, warps: 8}}", 2, 300, 70, 1};
const HopperCase three_consumers = {
    "{head_dim: 40, mask: causal, blocks: {m: 192, n: 64, stages: 2, warps: 16, ping_pong: true}}", 3, 400,
    400};
// Consumers pass over tiles that others see; some rows see no key.
const HopperCase windowed = {
    "{head_dim: 64, mask: {window: [40, 9]}, blocks: {m: 192, n: 32, stages: 2, warps: 16, ping_pong: true}}",
    2, 720, 250, 1};
const HopperCase block_a_tile = {
    "{head_dim: 96, mask: causal, blocks: {m: 128, n: 64, stages: 2, warps: 12, ping_pong: true}}", 2, 300,
    300, 0};

// Each cluster computes several pairs of tiles, the last one without rows for its second block; a tile of
// keys has an odd number of panels.
const HopperCase pair = {"{head_dim: {qk: 136, v: 128}, blocks: {m: 64, n: 32, stages: 2, cluster: 2}}", 2,
                         300, 150};
const HopperCase pair_with_turns = {
    "{head_dim: 80, gqa_ratio: 2, blocks: {m: 128, n: 48, stages: 1, ping_pong: true, cluster: 2}}", 1, 200,
    150, 0};

// Four heads in the rows of a tile, at positions with different masks and beyond the last.
const HopperCase folded = {
    "{head_dim: 64, gqa_ratio: 4, mask: causal, blocks: {m: 128, n: 32, stages: 2, pack_group: 4}}", 2, 75,
    90};

// --- as they are

void expect_right(HopperProblem& problem, const std::string& text, uint64_t seed, int os_threads = 1) {
  const HostKernel kernel = problem.build(text);
  const simulator::Report report = problem.run(kernel, seed, os_threads);
  ASSERT_TRUE(report.ok) << "seed " << seed << ": " << with_source_line(report, text);
  const Verdict verdict = problem.verdict();
  ASSERT_TRUE(verdict.ok) << "seed " << seed << ": " << verdict.message;
  ASSERT_TRUE(problem.counters_are_zero());
}

TEST(HopperKernel, EverySeedGivesTheRightAnswer) {
  for (const HopperCase& test :
       {ping_pong, plain, one_consumer, three_consumers, block_a_tile, pair, pair_with_turns, folded}) {
    HopperProblem problem(test);
    for (uint64_t seed = 0; seed < 6; ++seed) expect_right(problem, problem.source().text, seed);
  }
}

TEST(HopperKernel, BlocksShareTilesAcrossThreads) {
  HopperCase test = ping_pong;
  test.blocks = 4;
  test.seqlen_q = 1200;
  HopperProblem problem(test), of_clusters(pair);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    expect_right(problem, problem.source().text, seed, 4);
    expect_right(of_clusters, of_clusters.source().text, seed, 4);
  }
}

// --- with a defect

std::string replace_every(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("not in the source: " + from);
  for (; at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

struct Defect {
  const char* name;
  HopperCase problem;
  const char* from;
  const char* to;
  const char* message;  // part of every report; empty: any report, or a wrong answer
};

void PrintTo(const Defect& defect, std::ostream* out) {
  *out << defect.name;
}

class HopperDefect : public testing::TestWithParam<Defect> {};

TEST_P(HopperDefect, IsFoundWithEverySeed) {
  const Defect& defect = GetParam();
  HopperProblem problem(defect.problem);
  const std::string text = replace_every(problem.source().text, defect.from, defect.to);
  const HostKernel kernel = problem.build(text);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const simulator::Report report = problem.run(kernel, seed);
    if (*defect.message) {
      ASSERT_FALSE(report.ok) << "seed " << seed;
      ASSERT_NE(report.message.find(defect.message), std::string::npos) << report.message;
      ASSERT_NE(report.message.find("kernel attention_forward, block "), std::string::npos) << report.message;
    } else {
      ASSERT_TRUE(!report.ok || !problem.verdict().ok || !problem.counters_are_zero()) << "seed " << seed;
    }
  }
}

constexpr const char* wait_for_values = "barrier_wait(layout.value_full(values.stage), values.parity);";
constexpr const char* wait_for_keys = "barrier_wait(layout.key_full(place.stage), place.parity);";
constexpr const char* expect_keys = "barrier_arrive_expecting(layout.key_full(place.stage), key_bytes);";
constexpr const char* key_arrivals = "barrier_initialize(layout.key_empty(stage), 4 * consumers * cluster);";
constexpr const char* next_turn = "  named_barrier_arrive<256>(1 + (";

INSTANTIATE_TEST_SUITE_P(
    Kernel, HopperDefect,
    testing::Values(
        Defect{"no_wait_for_values", ping_pong, wait_for_values, "", "tensor_load"},
        Defect{"keys_released_before_the_wait", ping_pong,
               "wait_scores<1>(scores);\n  release(layout.key_empty(place.stage));",
               "release(layout.key_empty(place.stage));\n  wait_scores<1>(scores);", "race: the write"},
        Defect{"wrong_parity", plain, wait_for_keys,
               "barrier_wait(layout.key_full(place.stage), place.parity ^ 1);", ""},
        Defect{"parity_never_turns", ping_pong, "place.parity ^= 1;", "", ""},
        Defect{"one_arrival_less", ping_pong, key_arrivals,
               "barrier_initialize(layout.key_empty(stage), 4 * consumers - 1);", ""},
        Defect{"one_arrival_more", ping_pong, key_arrivals,
               "barrier_initialize(layout.key_empty(stage), 4 * consumers + 1);", "deadlock"},
        Defect{"all_lanes_arrive", ping_pong, "if (thread_index() % 32 == 0) barrier_arrive(empty_barrier);",
               "barrier_arrive(empty_barrier);", ""},
        Defect{"too_many_bytes", ping_pong, expect_keys,
               "barrier_arrive_expecting(layout.key_full(place.stage), key_bytes + 128);", "deadlock"},
        Defect{"too_few_bytes", plain, expect_keys,
               "barrier_arrive_expecting(layout.key_full(place.stage), key_bytes - panel_bytes);", ""},
        Defect{"no_wait_for_empty_keys", ping_pong,
               "barrier_wait(layout.key_empty(place.stage), place.parity ^ 1);", "", ""},
        Defect{"no_wait_for_empty_values", plain,
               "barrier_wait(layout.value_empty(place.stage), place.parity ^ 1);", "", "race: the write"},
        Defect{"no_wait_for_scores", ping_pong, "wait_scores<1>(scores);", "", ""},
        Defect{"wait_leaves_one_too_many", ping_pong, "wait_scores<1>(scores);", "wait_scores<2>(scores);",
               ""},
        Defect{"no_wait_for_output", ping_pong, "wait_output(output, probabilities, scores);", "", ""},
        Defect{"probabilities_change_too_early", ping_pong, "wait_output(output, probabilities, scores);",
               "pack_probabilities(probabilities, scores);\n  wait_output(output, probabilities, scores);",
               ""},
        Defect{"ping_pong_one_arrival_short", ping_pong, next_turn,
               "  if (thread_index() % 128 != 77) named_barrier_arrive<256>(1 + (", "deadlock"},
        Defect{"ping_pong_wrong_count", ping_pong, next_turn, "  named_barrier_arrive<224>(1 + (",
               "mismatched counts"},
        Defect{"no_first_turn", ping_pong,
               "if (ping_pong && group == consumers - 1) named_barrier_arrive<256>(1);", "", "deadlock"},
        Defect{"no_fence_after_initialisation", ping_pong, "  fence_barrier_initialization();\n", "",
               "the copy engine does not know the barrier"},
        Defect{"no_block_barrier", ping_pong, "  block_barrier();\n", "", "barrier at shared byte"},
        Defect{"tile_stored_after_it_is_published", ping_pong,
               "write_tile(layout.tile_slot(round % tile_slots) + 4, tile);\n  "
               "barrier_arrive(layout.tile_full(round % tile_slots));",
               "barrier_arrive(layout.tile_full(round % tile_slots));\n  "
               "write_tile(layout.tile_slot(round % tile_slots) + 4, tile);",
               ""},
        Defect{"passes_over_one_less", windowed, "i < before", "i + 1 < before", ""},
        Defect{"passes_over_one_less_at_the_end", windowed, "i < after", "i + 1 < after", ""},
        Defect{"takes_no_turn_for_what_it_passes_over", windowed, "if (ping_pong && takes_turn)",
               "if (false)", ""},
        Defect{"takes_a_turn_too_many", windowed, "i > 0 || walk.visits(walk.ahead(0))", "true", ""},
        Defect{"slot_read_too_early", ping_pong,
               "barrier_wait(layout.tile_full(round % tile_slots), round / tile_slots % 2);", "", ""},
        Defect{"takes_too_many_registers", ping_pong, "take_registers<consumer_registers>();",
               "take_registers<consumer_registers + 16>();", "deadlock"},
        Defect{"producer_keeps_its_registers", ping_pong, "release_registers<producer_registers>();", ";",
               "deadlock"},
        Defect{"no_fence_before_products", ping_pong, "  simulator->warpgroup_fence(site);\n", "",
               "warpgroup_fence"},
        Defect{"no_commit", ping_pong, "  simulator->warpgroup_commit(site);\n", "", ""},
        Defect{"one_warp_skips_a_product", ping_pong, "multiply_query_keys(scores, me.query",
               "if (thread_index() / 32 != 6) multiply_query_keys(scores, me.query", ""},
        Defect{"wrong_stage", ping_pong, "me.keys + place.stage * (key_bytes / 16)", "me.keys", ""},
        Defect{"values_not_transposed", ping_pong, "1, 1, 1, site);", "1, 0, 1, site);", ""},
        Defect{"wrong_panel_offset", plain, "warpgroup_descriptor(layout.value(0), panel_bytes)",
               "warpgroup_descriptor(layout.value(0), 1024)", ""},
        Defect{"counters_not_reset", ping_pong, "global_store(p.counters, 0);", "", ""},
        Defect{"tile_given_out_twice", ping_pong, "global_add(p.counters, 1) + grid_blocks()",
               "global_add(p.counters, 1) + grid_blocks() - 1", ""},
        Defect{"no_meeting_at_start", pair, "  if (clustered) cluster_barrier();  // before", "  //",
               "barrier at shared byte"},
        Defect{"no_meeting_at_end", pair, "  if (clustered) cluster_barrier();  // a block", "  //",
               "the block of rank"},
        Defect{"half_for_one_block_alone", pair, "(1 << cluster) - 1", "1 << cluster_rank()", " lacks "},
        Defect{"both_bring_the_same_half", pair, "i * cluster + cluster_rank()", "i * cluster", ""},
        Defect{"waits_for_its_own_half", pair, expect_keys,
               "barrier_arrive_expecting(layout.key_full(place.stage), key_bytes / 2);", ""},
        Defect{"arrivals_of_one_block", pair, key_arrivals,
               "barrier_initialize(layout.key_empty(stage), 4 * consumers);", ""},
        Defect{"releases_its_own_stage_alone", pair, "if (lane < cluster && lane != cluster_rank())",
               "if (false)", " lacks "},
        Defect{"does_not_wait_for_the_other_block", pair,
               "barrier_wait(layout.value_empty(place.stage), place.parity ^ 1);", "", ""},
        Defect{"heads_of_a_group_confused", folded, "half * 8) % pack_group", "half * 8) / 2 % pack_group",
               ""},
        Defect{"mask_of_another_position", folded, "if (grouped) row_in_tile /= pack_group;", "", ""},
        Defect{"mask_of_the_lower_rows", folded, "if (grouped) further /= pack_group;", "", ""},
        Defect{"stores_the_lower_rows_elsewhere", folded, "half * (8 / pack_group)", "half * 8", ""},
        Defect{"second_consumer_has_the_first_rows", folded, "consumer * (block_m / consumers)", "0", ""},
        Defect{"group_of_the_first_heads_alone", folded, "(group - tile.batch * groups_a_batch) * pack_group",
               "0", ""},
        Defect{"both_compute_the_same_rows", pair, " + cluster_rank() * block_m", "", ""},
        Defect{"clusters_share_no_tiles", pair, "grid_blocks() / cluster", "1", ""}),
    [](const auto& defect) { return defect.param.name; });

/// Where the text calls what starts with `call`, after the primitives.
std::vector<size_t> calls_in(const std::string& text, const std::string& call) {
  std::vector<size_t> calls;
  size_t at = text.find("void initialize_barriers(");
  while ((at = text.find(call, at + 1)) != std::string::npos) calls.push_back(at);
  return calls;
}

class HopperCall : public testing::TestWithParam<const char*> {};

// Each call in the kernel is there for a reason: without it there is a schedule that fails with every seed.
TEST_P(HopperCall, NoneCanBeLeftOut) {
  std::vector<bool> found;
  for (const HopperCase& test : {ping_pong, plain, one_consumer, three_consumers, windowed, pair}) {
    HopperProblem problem(test);
    const std::string& whole = problem.source().text;
    const std::vector<size_t> calls = calls_in(whole, GetParam());
    found.resize(std::max(found.size(), calls.size()));
    for (size_t i = 0; i < calls.size(); ++i) {
      if (found[i]) continue;
      const std::string text = whole.substr(0, calls[i]) + whole.substr(whole.find(';', calls[i]));
      const HostKernel kernel = problem.build(text);
      bool every_seed = true;
      for (uint64_t seed = 0; seed < 4 && every_seed; ++seed) {
        every_seed = !problem.run(kernel, seed).ok || !problem.verdict().ok;
      }
      found[i] = every_seed;
    }
  }
  EXPECT_FALSE(found.empty());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i]) << "call " << i + 1 << " of " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Kernel, HopperCall,
                         testing::Values("barrier_wait(layout.", "release(layout.",
                                         "release_elsewhere(layout.", "barrier_arrive(layout.",
                                         "barrier_arrive_expecting(layout.", "wait_scores<",
                                         "wait_output(output", "barrier_initialize(layout."));

}  // namespace
}  // namespace tilewright
