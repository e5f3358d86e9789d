// A whole tuning of one spec, the GPU and the compiler made up: the clock's true times are known.
#include "tuner/tuner.h"

#include <gtest/gtest.h>

#include "codegen/error.h"
#include "codegen/timing_shape.h"
#include "tests/support/simulated_gpu.h"

namespace tilewright {
namespace {

using test::hopper;
using test::parts_of;

AttentionSpec llama() {
  return parse_spec("{head_dim: 128, gqa_ratio: 4, mask: causal}", "spec");
}

const Schedule& best_of(const TunedSpec& tuned, const TunedBucket& bucket) {
  return tuned.candidates[bucket.winner()].schedule;
}

TEST(Tune, FindsTheBestBeyondTheMargin) {
  const Schedule best{Family::sm90, 128, 144, 12, 2, false, true};
  const auto times = [&](const Schedule& schedule, double predicted) {
    return schedule == best ? 0.8 * predicted : predicted;
  };
  for (uint64_t seed : {1, 50}) {
    const TunedSpec tuned =
        tune(llama(), hopper(), typical_gpu(hopper()), parts_of(llama(), times, {}, seed));
    ASSERT_EQ(tuned.buckets.size(), shape_buckets().size());
    const TunedBucket& bucket = tuned.buckets.back();
    EXPECT_EQ(bucket.bucket->name, "long");
    EXPECT_EQ(best_of(tuned, bucket), best);
    EXPECT_GT(bucket.selection.gain, 0.1);
    EXPECT_GT(bucket.correlation, 0.8) << "the clock follows the model";
    EXPECT_EQ(tuned.candidates[bucket.candidates[0]].schedule, choose_schedule(llama(), hopper()));
  }
}

// Cases J4 and J5.
TEST(Tune, WhatIsWrongOrDoesNotCompileIsNeverTimed) {
  const Schedule usual = choose_schedule(llama(), hopper());
  const auto wrong = [&](const Schedule& schedule) {
    return schedule.block_n > usual.block_n ? "out[0, 0, 0, 0] is nan, expected 0.5" : "";
  };
  const auto times = [&](const Schedule& schedule, double predicted) {
    // The wrong ones and those that do not compile would be the fastest by far.
    return schedule.block_n > usual.block_n || schedule.block_m == 192 ? 0.1 * predicted : predicted;
  };
  TuneParts parts = parts_of(llama(), times, wrong);
  parts.compile = [](const std::vector<Schedule>& schedules, const std::function<void(size_t)>&) {
    std::vector<CompileOutcome> outcomes(schedules.size());
    for (size_t i = 0; i < schedules.size(); ++i) {
      if (schedules[i].block_m == 192) outcomes[i].failure = "NVRTC refused the source";
      if (!schedules[i].ping_pong) outcomes[i].report.spill_bytes = 56;
    }
    return outcomes;
  };
  const TunedSpec tuned = tune(llama(), hopper(), typical_gpu(hopper()), parts);
  int wrong_ones = 0, refused_by_compiler = 0, spilling = 0;
  for (const TunedBucket& bucket : tuned.buckets) {
    EXPECT_GE(bucket.selection.winner, 0);
    for (size_t i = 0; i < bucket.candidates.size(); ++i) {
      const TunedCandidate& candidate = tuned.candidates[bucket.candidates[i]];
      const bool timed = !bucket.selection.candidates[i].samples.empty();
      EXPECT_EQ(timed, candidate.refused.empty()) << describe(candidate.schedule);
      wrong_ones += candidate.refused.find("nan") != std::string::npos;
      refused_by_compiler += candidate.refused == "NVRTC refused the source";
      spilling += candidate.refused == "spills 56 bytes";
    }
    EXPECT_TRUE(tuned.candidates[bucket.winner()].refused.empty());
  }
  EXPECT_GT(wrong_ones, 0);
  EXPECT_GT(refused_by_compiler, 0);
  EXPECT_GT(spilling, 0);
}

TEST(Tune, NothingRightIsNoWinner) {
  const auto times = [](const Schedule&, double predicted) { return predicted; };
  const TunedSpec tuned =
      tune(llama(), hopper(), typical_gpu(hopper()),
           parts_of(llama(), times, [](const Schedule&) { return std::string("wrong"); }));
  EXPECT_EQ(tuned.buckets[0].selection.winner, -1);
  EXPECT_EQ(tuned.buckets[0].selection.note, "no candidate is right");
}

TEST(Tune, TheSweepSaysHowFarTheSearchWasOff) {
  TuneOptions options;
  options.exhaustive = true;
  options.candidates = 6;
  options.buckets = {&long_bucket()};
  // Something the model thinks little of.
  const Schedule hidden{Family::sm90, 64, 32, 8, 4, false, false};
  const auto times = [&](const Schedule& schedule, double predicted) {
    return schedule == hidden ? 100 : 1000 + 0.1 * predicted;
  };
  const TunedSpec tuned = tune(llama(), hopper(), typical_gpu(hopper()), parts_of(llama(), times), options);
  const TunedBucket& bucket = tuned.buckets[0];
  ASSERT_TRUE(bucket.sweep);
  EXPECT_EQ(tuned.candidates[bucket.candidates[bucket.sweep->winner]].schedule, hidden);
  EXPECT_GT(bucket.behind_best, 5);
  EXPECT_EQ(bucket.timed, static_cast<int>(tuned.space.legal.size()));
}

TEST(Tune, RefusesWhatItCannotTune) {
  const auto message = [](const char* spec, const char* target) -> std::string {
    try {
      require_tunable(parse_spec(spec, "spec"), target_by_name(target));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("head_dim: 64", "sm_80"), "");
  EXPECT_NE(message("{head_dim: 64, blocks: {m: 64}}", "sm_80").find("`blocks` of its own"),
            std::string::npos);
  EXPECT_NE(message("{head_dim: 64, pass: decode}", "sm_80").find("the forward and the backward pass"),
            std::string::npos);
  EXPECT_NE(message("{head_dim: 64, rope: half}", "sm_80").find("no kernel for this spec"),
            std::string::npos);
}

TEST(TimingShape, LiesInItsBucket) {
  for (const char* text : {"head_dim: 64", "{head_dim: 64, gqa_ratio: 71}", "{head_dim: 128, gqa_ratio: 5}",
                           "{head_dim: 8, gqa_ratio: 128}"})
    for (const ShapeBucket& bucket : shape_buckets()) {
      const AttentionSpec spec = parse_spec(text, "spec");
      const LaunchShape shape = timing_shape(spec, bucket);
      EXPECT_EQ(bucket_of(shape).name, bucket.name) << text;
      EXPECT_EQ(shape.heads % spec.gqa_ratio, 0);
    }
  const LaunchShape shape = timing_shape(parse_spec("head_dim: 64", "spec"), bucket_by_name("short"));
  EXPECT_EQ(shape.batch * shape.seqlen_q, 16384) << "enough to fill a GPU";
}

}  // namespace
}  // namespace tilewright
