// Legality, resources and the default rule of schedules.
#include "codegen/schedule.h"

#include <gtest/gtest.h>

#include "codegen/error.h"
#include "codegen/launch_plan.h"
#include "codegen/model_choice.h"

namespace tilewright {
namespace {

AttentionSpec spec_of(const std::string& yaml) {
  return parse_spec(yaml, "spec");
}

std::string refusal(const std::string& yaml, const char* target) {
  try {
    choose_schedule(spec_of(yaml), target_by_name(target));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::spec);
    return error.what();
  }
  return "";
}

TEST(Schedule, EverySupportedSpecHasALegalDefaultOnEveryTarget) {
  for (const Target& target : targets())
    for (int qk = 8; qk <= 256; qk += 8)
      for (int v : {8, 64, 96, 128, 200, 256}) {
        const AttentionSpec spec =
            spec_of("{head_dim: {qk: " + std::to_string(qk) + ", v: " + std::to_string(v) + "}}");
        const Schedule schedule = choose_schedule(spec, target);
        EXPECT_TRUE(illegal_because(spec, schedule, target).empty());
        EXPECT_LE(resources(spec, schedule, target).shared_memory, target.shared_memory_per_block);
      }
}

TEST(Schedule, SharedMemoryIsThatOfTheTiles) {
  const AttentionSpec spec = spec_of("{head_dim: {qk: 72, v: 40}}");
  const Schedule schedule{Family::sm80, 64, 32, 4, 3, false};
  // Columns padded to 80 and 48, two bytes each.
  EXPECT_EQ(resources(spec, schedule, target_by_name("sm_80")).shared_memory, 64 * 160 + 3 * 32 * (160 + 96));
}

TEST(Schedule, L5TooLargeForSharedMemory) {
  const std::string message = refusal("{head_dim: 256, blocks: {m: 256, n: 256, stages: 4}}", "sm_89");
  EXPECT_NE(message.find("1179648 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("101376"), std::string::npos) << message;
  EXPECT_NE(message.find("nearest that fits"), std::string::npos) << message;
}

TEST(Schedule, EachIllegalAxisIsNamed) {
  for (auto [blocks, expected] :
       std::vector<std::pair<const char*, const char*>>{{"{m: 272}", "blocks.m is 272"},
                                                        {"{n: 8}", "blocks.n is 8"},
                                                        {"{n: 40}", "multiple of 16"},
                                                        {"{m: 64, warps: 8}", "multiple of 16 times warps"},
                                                        {"{warps: 17}", "blocks.warps is 17"},
                                                        {"{stages: 9}", "blocks.stages is 9"},
                                                        {"{m: 128, n: 256, warps: 4}", "registers a thread"}})
    EXPECT_NE(refusal(std::string("{head_dim: 64, blocks: ") + blocks + "}", "sm_80").find(expected),
              std::string::npos)
        << blocks << ": " << refusal(std::string("{head_dim: 64, blocks: ") + blocks + "}", "sm_80");
}

TEST(Schedule, EachIllegalAxisOfHopperIsNamed) {
  for (auto [blocks, expected] : std::vector<std::pair<const char*, const char*>>{
           {"{family: sm90, m: 32}", "blocks.m is 32"},
           {"{family: sm90, m: 96}", "expected 64, 128, 192 or 256"},
           {"{family: sm90, n: 24}", "multiple of 16"},
           {"{family: sm90, n: 176}", "of a consumer's 160"},
           {"{family: sm90, m: 128, warps: 4}", "expected 12"},
           {"{family: sm90, m: 64, ping_pong: true}", "two consumers"},
           {"{family: sm90, query_in_registers: true}", "sm80 family alone"},
           {"{family: sm90, stages: 8}", "bytes of shared memory"},
           {"{family: sm80, ping_pong: true}", "sm90 family alone"},
           {"{family: sm80, pack_group: 2}", "sm90 family's forward pass alone"},
           {"{family: sm90, pack_group: 2}",
            "expected 1, the largest power of two up to 64 that divides gqa_ratio, 1"},
           {"{family: sm80, cluster: 2}", "sm90 family's forward pass alone"},
           {"{family: sm90, cluster: 2}", "72 columns or more of K and of V"}})
    EXPECT_NE(refusal(std::string("{head_dim: 64, blocks: ") + blocks + "}", "sm_90a").find(expected),
              std::string::npos)
        << blocks << ": " << refusal(std::string("{head_dim: 64, blocks: ") + blocks + "}", "sm_90a");
  for (const char* more : {"mask: causal", "mask: {window: [8, 8]}", "mask: \"kv % 2 == 0\"",
                           "layout: packed", "mask: {blocks: {m: 128, n: 128}}", "pass: backward"})
    EXPECT_NE(refusal(std::string("{head_dim: 128, blocks: {cluster: 2}, ") + more + "}", "sm_90a")
                  .find("blocks.cluster"),
              std::string::npos)
        << more;
  EXPECT_NE(refusal("{head_dim: 64, blocks: {family: sm90}}", "sm_80").find("needs wgmma"),
            std::string::npos);
}

TEST(Schedule, HopperTakesItsOwnFamilyAndTheOtherWhenAskedTo) {
  const Target& hopper = target_by_name("sm_90a");
  EXPECT_EQ(choose_schedule(spec_of("head_dim: 64"), hopper).family, Family::sm90);
  EXPECT_EQ(choose_schedule(spec_of("{head_dim: 64, blocks: {family: sm80}}"), hopper).family, Family::sm80);
  // What only sm80 can do is taken for a wish for it.
  EXPECT_EQ(choose_schedule(spec_of("{head_dim: 64, blocks: {m: 64, n: 64, warps: 4}}"), hopper).family,
            Family::sm80);
  EXPECT_EQ(choose_schedule(spec_of("head_dim: 64"), target_by_name("sm_100a")).family, Family::sm80);
}

// What was measured on an H200 (bench/results/h200-schedules.json): rows, keys, stages and turns of the
// default.
TEST(Schedule, HopperDefaultsFollowMaskAndLength) {
  const auto tiles = [](const char* yaml, const char* bucket) {
    const Schedule s = untuned_schedule(spec_of(yaml), target_by_name("sm_90a"), bucket_by_name(bucket));
    return std::to_string(s.block_m) + " x " + std::to_string(s.block_n) + ", " + std::to_string(s.stages) +
           (s.ping_pong ? ", turns" : "");
  };
  EXPECT_EQ(tiles("head_dim: 128", "long"), "128 x 160, 2");
  EXPECT_EQ(tiles("head_dim: 128", "short"), "128 x 128, 2, turns");
  for (const char* other : {"{head_dim: 128, mask: causal}", "{head_dim: 128, dropout: true}",
                            "{head_dim: 128, layout: packed}", "{head_dim: 128, bias: true}"})
    EXPECT_EQ(tiles(other, "long"), "128 x 128, 2, turns") << other;
  const char* documents = "{head_dim: 64, mask: \"kv <= q && kv >= start[q]\", tensors: {start: 'int32[q]'}}";
  EXPECT_EQ(tiles(documents, "long"), "192 x 128, 3, turns");
  const char* wide = "{head_dim: 128, mask: \"kv <= q && kv >= start[q]\", tensors: {start: 'int32[q]'}}";
  EXPECT_EQ(tiles(wide, "long"), "128 x 128, 3, turns");
  EXPECT_EQ(tiles(wide, "short"), "128 x 128, 2, turns") << "a third stage would take a buffer of Q";
  EXPECT_EQ(tiles("{head_dim: 64, mask: causal, alibi: true}", "long"), "192 x 128, 2, turns");
}

TEST(Schedule, HeadsOfAGroupShareATile) {
  const AttentionSpec spec =
      spec_of("{head_dim: 128, gqa_ratio: 12, blocks: {m: 128, n: 64, pack_group: 4}}");
  const Schedule schedule = choose_schedule(spec, target_by_name("sm_90a"));
  EXPECT_EQ(schedule.pack_group, 4);
  EXPECT_NE(describe(schedule).find("groups of 4 heads"), std::string::npos);
  EXPECT_EQ(schedule_of(request_for(schedule)), schedule);
  const LaunchShape shape = {.batch = 3, .heads = 24, .seqlen_q = 33, .seqlen_kv = 1};
  EXPECT_EQ(plan_launch(spec, schedule, shape).m_tiles, 2) << "32 positions of 4 heads a tile";
  EXPECT_EQ(plan_launch(spec, schedule, shape).tiles, 2 * 6 * 3);
  for (const char* more : {"score: score - kv * 0.1", "mask: \"kv % 2 == 0\"", "alibi: true", "bias: true",
                           "layout: packed", "mask: {blocks: {m: 128, n: 128}}", "pass: backward"})
    EXPECT_NE(
        refusal(std::string("{head_dim: 128, gqa_ratio: 4, blocks: {pack_group: 4}, ") + more + "}", "sm_90a")
            .find("blocks.pack_group"),
        std::string::npos)
        << more;
  EXPECT_NE(
      refusal("{head_dim: 128, gqa_ratio: 4, blocks: {pack_group: 4, cluster: 2}}", "sm_90a").find("exclude"),
      std::string::npos);
  EXPECT_NE(
      refusal("{head_dim: 128, gqa_ratio: 8, blocks: {pack_group: 4}}", "sm_90a").find("expected 1 or 8"),
      std::string::npos);
}

TEST(Schedule, ClustersTakeTheirTilesTogether) {
  const AttentionSpec spec = spec_of("{head_dim: 128, blocks: {m: 64, n: 64, cluster: 2}}");
  const Schedule schedule = choose_schedule(spec, target_by_name("sm_90a"));
  EXPECT_EQ(schedule.cluster, 2);
  EXPECT_NE(describe(schedule).find("clusters of 2"), std::string::npos);
  EXPECT_EQ(schedule_of(request_for(schedule)), schedule);
  const LaunchShape shape = {.batch = 3, .heads = 5, .seqlen_q = 129, .seqlen_kv = 1};
  EXPECT_EQ(plan_launch(spec, schedule, shape).m_tiles, 2);
  EXPECT_EQ(plan_launch(spec, schedule, shape).tiles, 30);
  // Blocks by hand that do not ask for clusters have none, whatever the default rule says.
  EXPECT_EQ(choose_schedule(spec_of("{head_dim: 256, blocks: {m: 128}}"), target_by_name("sm_90a")).cluster,
            1);
}

TEST(Schedule, UnsupportedSpecsSayWhy) {
  for (auto [yaml, expected] : std::vector<std::pair<const char*, const char*>>{
           {"{head_dim: 64, pass: decode}", "`pass: decode`"},
           {"{head_dim: 64, layout: paged, page_size: 16}", "`layout: paged`"},
           {"{head_dim: 64, dtype: e4m3}", "`dtype`"},
           {"{head_dim: 512}", "multiples of 8 up to 256"},
           {"{head_dim: 64, mask: 'kv < n[q]', tensors: {n: 'int32[q]'}, layout: packed}",
            "batch dimension"}})
    EXPECT_NE(refusal(yaml, "sm_90a").find(expected), std::string::npos) << refusal(yaml, "sm_90a");
}

TEST(Schedule, TheSpecsOwnBlocksAreTaken) {
  const Schedule schedule = choose_schedule(
      spec_of("{head_dim: 64, blocks: {m: 32, n: 16, warps: 2, stages: 3}}"), target_by_name("sm_80"));
  EXPECT_EQ(schedule.block_m, 32);
  EXPECT_EQ(schedule.block_n, 16);
  EXPECT_EQ(schedule.warps, 2);
  EXPECT_EQ(schedule.stages, 3);
}

TEST(LaunchPlan, OneDimensionOfBlocks) {
  const Schedule schedule{Family::sm80, 64, 32, 4, 2, false};
  const LaunchPlan plan = plan_launch(spec_of("head_dim: 64"), schedule,
                                      {.batch = 3, .heads = 70000, .seqlen_q = 65, .seqlen_kv = 0});
  EXPECT_EQ(plan.m_tiles, 2);
  EXPECT_EQ(plan.tiles, 3 * 70000 * 2);
  EXPECT_EQ(
      plan_launch(spec_of("head_dim: 64"), schedule, {.batch = 0, .heads = 1, .seqlen_q = 5, .seqlen_kv = 5})
          .tiles,
      0);
  EXPECT_EQ(
      plan_launch(spec_of("head_dim: 64"), schedule, {.batch = 2, .heads = 1, .seqlen_q = 0, .seqlen_kv = 5})
          .tiles,
      0);
}

TEST(LaunchPlan, RefusesWhatNoLaunchCanHold) {
  const Schedule schedule{Family::sm80, 64, 32, 4, 2, false};
  const auto plan = [&](LaunchShape shape) {
    return plan_launch(spec_of("head_dim: 64"), schedule, shape).tiles;
  };
  EXPECT_THROW(plan({.batch = -1, .heads = 1, .seqlen_q = 1, .seqlen_kv = 1}), Error);
  EXPECT_THROW(plan({.batch = 1, .heads = 1, .seqlen_q = 1, .seqlen_kv = int64_t{1} << 31}), Error);
  EXPECT_THROW(plan({.batch = 1 << 30, .heads = 1 << 30, .seqlen_q = 1 << 30, .seqlen_kv = 1}), Error);
  EXPECT_EQ(plan({.batch = 1, .heads = 1 << 20, .seqlen_q = 64 * 2000, .seqlen_kv = 1}), int64_t{2000} << 20);
}

}  // namespace
}  // namespace tilewright
