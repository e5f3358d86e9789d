// The schedule of GPUs that nobody measured.
#include "codegen/model_choice.h"

#include <gtest/gtest.h>

#include "codegen/cost_model.h"
#include "codegen/timing_shape.h"

namespace tilewright {
namespace {

AttentionSpec spec_of(const char* text) {
  return parse_spec(text, "spec");
}

TEST(ModelChoice, DecidesWhereTheRuleWasNotMeasured) {
  const AttentionSpec spec = spec_of("{head_dim: 128, gqa_ratio: 4, mask: causal}");
  for (const Target& target : targets()) {
    const auto choice = model_choice(spec, target, long_bucket());
    EXPECT_EQ(choice.has_value(), target.name != "sm_90a") << target.name;
    if (!choice) continue;
    EXPECT_TRUE(illegal_because(spec, choice->schedule, target).empty());
    EXPECT_NE(choice->reason.find(target.generation), std::string::npos) << choice->reason;
  }
  EXPECT_FALSE(
      model_choice(spec_of("{head_dim: 64, blocks: {m: 64}}"), target_by_name("sm_80"), long_bucket()));
}

// Two machines, and a bundle made on a third, agree; and whatever a spec says, something legal comes out.
TEST(ModelChoice, IsLegalAndTheSameEveryTime) {
  for (const char* text :
       {"head_dim: 8", "{head_dim: 256, softcap: 50}", "{head_dim: {qk: 192, v: 128}, mask: causal}",
        "{head_dim: 64, mask: {window: [127, 0]}, sinks: true}",
        "{head_dim: 64, layout: packed, mask: causal}", "{head_dim: 128, mask: {blocks: {m: 64, n: 16}}}",
        "{head_dim: 64, pass: backward, mask: causal}", "{head_dim: 256, pass: backward}",
        "{head_dim: 128, mask: 'kv <= q || kv < p', scalars: {p: int}}"})
    for (const Target& target : targets())
      for (const ShapeBucket& bucket : shape_buckets()) {
        const AttentionSpec spec = spec_of(text);
        const Schedule schedule = untuned_schedule(spec, target, bucket);
        EXPECT_TRUE(illegal_because(spec, schedule, target).empty())
            << text << target.name << describe(schedule);
        EXPECT_EQ(schedule, untuned_schedule(spec, target, bucket));
      }
}

TEST(ModelChoice, LeavesTheRuleOnlyForWhatIsSureToBeFaster) {
  for (const char* text :
       {"{head_dim: 64, mask: causal}", "{head_dim: 256}", "{head_dim: 96, pass: backward}"})
    for (const Target& target : targets()) {
      const AttentionSpec spec = spec_of(text);
      const auto choice = model_choice(spec, target, long_bucket());
      const Schedule usual = choose_schedule(spec, target);
      if (!choice || choice->schedule == usual) continue;
      const auto time = [&](const Schedule& schedule) {
        return estimate_cost(spec, schedule, target, typical_gpu(target), timing_shape(spec, long_bucket()))
            .microseconds;
      };
      EXPECT_GE(time(usual), 1.1 * time(choice->schedule)) << text << target.name;
    }
}

TEST(ModelChoice, CutsTilesToTheMask) {
  const Target& ampere = target_by_name("sm_80");
  const AttentionSpec narrow = spec_of("{head_dim: 64, gqa_ratio: 8, mask: {window: [127, 0]}}");
  EXPECT_LT(untuned_schedule(narrow, ampere, long_bucket()).block_m, choose_schedule(narrow, ampere).block_m)
      << "tiles of 128 rows through a window of 128 keys are mostly masked";
}

TEST(CostModel, BackwardGrowsWithWorkAndPrefersLargerTilesOfKeys) {
  const AttentionSpec spec = spec_of("{head_dim: 64, pass: backward}");
  const Target& ampere = target_by_name("sm_80");
  const GpuFigures gpu = typical_gpu(ampere);
  const auto time = [&](const Schedule& schedule, int64_t length) {
    return estimate_cost(spec, schedule, ampere, gpu, {2, 16, length, length}).microseconds;
  };
  const Schedule large{Family::sm80, 64, 128, 8, 2}, small{Family::sm80, 32, 32, 4, 1};
  EXPECT_LT(time(large, 8192), time(small, 8192));
  EXPECT_NEAR(time(large, 8192) / time(large, 4096), 4, 0.5);
  EXPECT_EQ(time(large, 0), 0);
}

}  // namespace
}  // namespace tilewright
