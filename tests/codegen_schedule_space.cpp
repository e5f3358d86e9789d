// The space of schedules and the model that ranks it; no device.
#include "codegen/schedule_space.h"

#include <gtest/gtest.h>

#include "codegen/cost_model.h"
#include "codegen/error.h"

namespace tilewright {
namespace {

AttentionSpec spec_of(const std::string& text) {
  return parse_spec("{" + text + "}", "spec");
}

TEST(ScheduleSpace, EveryPointIsLegalOrHasAReason) {
  for (const Target& target : targets()) {
    const AttentionSpec spec = spec_of("head_dim: 128, mask: causal");
    const ScheduleSpace space = schedule_space(spec, target);
    int refused = 0;
    for (const auto& [reason, points] : space.refused) {
      EXPECT_FALSE(reason.empty());
      EXPECT_NE(points.example.find(':'), std::string::npos);
      refused += points.count;
    }
    EXPECT_EQ(space.points, refused + static_cast<int>(space.legal.size()));
    EXPECT_GT(space.legal.size(), 10u) << target.name;
    for (const Schedule& schedule : space.legal) EXPECT_TRUE(illegal_because(spec, schedule, target).empty());
  }
}

TEST(ScheduleSpace, HoldsTheDefaultOfEveryBucket) {
  for (const Target& target : targets())
    for (const char* text : {"head_dim: 32", "head_dim: 64, mask: causal", "head_dim: 80, mask: causal",
                             "head_dim: 96", "head_dim: 128", "head_dim: {qk: 192, v: 128}", "head_dim: 256"})
      for (const ShapeBucket& bucket : shape_buckets()) {
        const AttentionSpec spec = spec_of(text);
        const ScheduleSpace space = schedule_space(spec, target);
        const Schedule usual = choose_schedule(spec, target, bucket);
        EXPECT_NE(std::find(space.legal.begin(), space.legal.end(), usual), space.legal.end())
            << text << ", " << target.name << ": " << describe(usual);
      }
}

TEST(ScheduleSpace, NothingForASpecWithoutAKernel) {
  const ScheduleSpace space = schedule_space(spec_of("head_dim: 64, rope: half"), target_by_name("sm_80"));
  EXPECT_EQ(space.points, 0);
}

TEST(ScheduleSpace, ReasonsAreCountedByClass) {
  EXPECT_EQ(reason_class("the tiles take 98304 bytes and sm_90a has 232448"),
            "the tiles take # bytes and sm_90a has #");
  const ScheduleSpace space = schedule_space(spec_of("head_dim: 256"), target_by_name("sm_86"));
  bool shared_memory = false;
  for (const auto& [reason, points] : space.refused)
    shared_memory |= reason.find("bytes of shared memory") != std::string::npos && points.count > 1;
  EXPECT_TRUE(shared_memory);
}

TEST(ScheduleSpace, BlocksSayTheWholeSchedule) {
  for (auto [target, text] :
       {std::pair("sm_80", "head_dim: 64"), std::pair("sm_90a", "head_dim: 64"),
        std::pair("sm_90a", "head_dim: 256"), std::pair("sm_90a", "head_dim: 64, gqa_ratio: 6")})
    for (const Schedule& schedule : schedule_space(spec_of(text), target_by_name(target)).legal) {
      EXPECT_EQ(schedule_of(request_for(schedule)), schedule) << describe(schedule);
      AttentionSpec spec = spec_of(text);
      spec.blocks = request_for(schedule);
      EXPECT_EQ(choose_schedule(spec, target_by_name(target)), schedule) << describe(schedule);
      EXPECT_EQ(parse_spec(canonical_form(spec), "again"), spec);
    }
  EXPECT_THROW(schedule_of(BlockRequest{.m = 64}), Error);
}

CostEstimate cost_of(const std::string& spec, const Schedule& schedule, const LaunchShape& shape) {
  const Target& target = target_by_name("sm_90a");
  return estimate_cost(spec_of(spec), schedule, target, typical_gpu(target), shape);
}

// Measured on an H200 (bench/results/h200-forward.json), microseconds.
TEST(CostModel, IsRightToAThirdOnMeasuredKernels) {
  struct Measured {
    const char* spec;
    Schedule schedule;
    LaunchShape shape;
    double microseconds;
  };
  const Schedule d64{Family::sm90, 192, 128, 16, 2, false, true},
      d128{Family::sm90, 128, 128, 12, 2, false, true}, d256{Family::sm90, 128, 80, 12, 2, false, true};
  const Schedule old64{Family::sm80, 128, 64, 4, 2, true}, old128{Family::sm80, 128, 64, 4, 1},
      old256{Family::sm80, 64, 64, 4, 1};
  const Measured list[] = {{"head_dim: 64", d64, {16, 32, 1024, 1024}, 313},
                           {"head_dim: 64", d64, {1, 32, 16384, 16384}, 3770},
                           {"head_dim: 64, mask: causal", d64, {4, 32, 4096, 4096}, 577},
                           {"head_dim: 128", d128, {16, 16, 1024, 1024}, 220},
                           {"head_dim: 128, mask: causal", d128, {4, 16, 4096, 4096}, 418},
                           {"head_dim: 128, mask: causal", d128, {1, 16, 16384, 16384}, 1510},
                           {"head_dim: 256", d256, {4, 8, 4096, 4096}, 711},
                           {"head_dim: 256, mask: causal", d256, {16, 8, 1024, 1024}, 138},
                           {"head_dim: 64", old64, {4, 32, 4096, 4096}, 1716},
                           {"head_dim: 128", old128, {4, 16, 4096, 4096}, 1518},
                           {"head_dim: 128, mask: causal", old128, {16, 16, 1024, 1024}, 237},
                           {"head_dim: 256", old256, {4, 8, 4096, 4096}, 1868}};
  std::vector<double> measured, predicted;
  for (const Measured& one : list) {
    const CostEstimate cost = cost_of(one.spec, one.schedule, one.shape);
    EXPECT_LT(cost.microseconds / one.microseconds, 1.5) << one.spec << ", " << describe(one.schedule);
    EXPECT_GT(cost.microseconds / one.microseconds, 0.67) << one.spec << ", " << describe(one.schedule);
    measured.push_back(one.microseconds);
    predicted.push_back(cost.microseconds);
  }
  EXPECT_GT(rank_correlation(measured, predicted), 0.9);
}

TEST(CostModel, KnowsWhatIsHopeless) {
  const LaunchShape shape{4, 16, 4096, 4096};
  const double good =
      cost_of("head_dim: 128", {Family::sm90, 128, 128, 12, 2, false, true}, shape).microseconds;
  EXPECT_GT(cost_of("head_dim: 128", {Family::sm90, 64, 32, 8, 2}, shape).microseconds, 1.2 * good);
  EXPECT_GT(cost_of("head_dim: 128", {Family::sm80, 16, 16, 1, 1}, shape).microseconds, 3 * good);
}

TEST(CostModel, EveryTargetRanksEveryLegalSchedule) {
  for (const Target& target : targets()) {
    const AttentionSpec spec = spec_of("head_dim: 96, mask: causal, softcap: 30");
    const auto ranked = rank_schedules(spec, schedule_space(spec, target).legal, target, typical_gpu(target),
                                       {1, 32, 2048, 2048});
    ASSERT_FALSE(ranked.empty());
    for (size_t i = 1; i < ranked.size(); ++i) {
      EXPECT_LE(ranked[i - 1].cost.microseconds, ranked[i].cost.microseconds);
      EXPECT_GT(ranked[i].cost.microseconds, 0) << describe(ranked[i].schedule);
    }
  }
}

TEST(CostModel, NothingToDoCostsNothing) {
  EXPECT_EQ(cost_of("head_dim: 64", {Family::sm90, 128, 128, 12, 2, false, true}, {1, 1, 0, 64}).microseconds,
            0);
}

TEST(CostModel, RankCorrelation) {
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3}, {10, 20, 30}), 1);
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3}, {3, 2, 1}), -1);
  EXPECT_DOUBLE_EQ(rank_correlation({1, 1, 1}, {3, 2, 1}), 0);
  EXPECT_DOUBLE_EQ(rank_correlation({1}, {1}), 0);
}

}  // namespace
}  // namespace tilewright
