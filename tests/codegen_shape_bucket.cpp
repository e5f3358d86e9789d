// Which bucket a launch belongs to, and the schedules of a spec per bucket.
#include "codegen/shape_bucket.h"

#include <gtest/gtest.h>

#include "codegen/error.h"
#include "codegen/schedule.h"

namespace tilewright {
namespace {

AttentionSpec spec_of(const std::string& yaml) {
  return parse_spec(yaml, "spec");
}

TEST(ShapeBucket, TheFirstWhoseLimitsAreKept) {
  const auto bucket = [](LaunchShape shape) { return std::string(bucket_of(shape).name); };
  EXPECT_EQ(bucket({}), "rows");
  EXPECT_EQ(bucket({.batch = 999, .heads = 32, .seqlen_q = 64, .seqlen_kv = 1}), "rows");
  EXPECT_EQ(bucket({.batch = 1, .heads = 1, .seqlen_q = 65, .seqlen_kv = 1}), "few");
  EXPECT_EQ(bucket({.batch = 1, .heads = 1, .seqlen_q = 128 * 128, .seqlen_kv = 1}), "few");
  EXPECT_EQ(bucket({.batch = 1, .heads = 1, .seqlen_q = 128 * 128 + 1, .seqlen_kv = 1}), "long");
  EXPECT_EQ(bucket({.batch = 4, .heads = 32, .seqlen_q = 128, .seqlen_kv = 1}), "few");
  EXPECT_EQ(bucket({.batch = 4, .heads = 32, .seqlen_q = 129, .seqlen_kv = 1 << 20}), "short");
  EXPECT_EQ(bucket({.batch = 16, .heads = 32, .seqlen_q = 2048, .seqlen_kv = 2048}), "short");
  EXPECT_EQ(bucket({.batch = 16, .heads = 32, .seqlen_q = 2049, .seqlen_kv = 2049}), "long");
  // The product passes 2^63.
  EXPECT_EQ(bucket({.batch = INT32_MAX, .heads = INT32_MAX, .seqlen_q = INT32_MAX, .seqlen_kv = 1}), "long");
}

TEST(ShapeBucket, ByName) {
  for (const ShapeBucket& bucket : shape_buckets()) {
    EXPECT_EQ(&bucket_by_name(bucket.name), &bucket);
    EXPECT_EQ(&shape_buckets()[index_of(bucket)], &bucket);
  }
  EXPECT_EQ(long_bucket().name, "long");
  try {
    bucket_by_name("shrot");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "unknown shape bucket \"shrot\"; expected one of rows few short long; nearest: short");
  }
}

TEST(BucketSchedules, DependOnTheLaunchWhereThatWasMeasuredToWin) {
  const Target& hopper = target_by_name("sm_90a");
  const AttentionSpec causal = spec_of("{head_dim: 80, mask: causal}");
  const LaunchShape brief{.batch = 16, .heads = 32, .seqlen_q = 1024, .seqlen_kv = 1024},
      lengthy{.batch = 1, .heads = 32, .seqlen_q = 16384, .seqlen_kv = 16384};
  EXPECT_EQ(schedule_for(causal, hopper, brief).block_m, 128);
  EXPECT_EQ(schedule_for(causal, hopper, lengthy).block_m, 192);
  EXPECT_EQ(schedule_for(spec_of("{head_dim: 64, mask: causal}"), hopper, brief).block_m, 256);
  for (const char* full_registers : {"dropout: true", "layout: packed"})
    EXPECT_EQ(schedule_for(spec_of(std::string("{head_dim: 64, mask: causal, ") + full_registers + "}"),
                           hopper, brief)
                  .block_m,
              128);
  EXPECT_EQ(choose_schedule(causal, hopper), schedule_for(causal, hopper, lengthy));
  const BucketSchedules schedules = bucket_schedules(causal, hopper);
  EXPECT_EQ(schedules.at(brief), schedule_for(causal, hopper, brief));
  EXPECT_EQ(schedules.at(lengthy), schedule_for(causal, hopper, lengthy));
  EXPECT_EQ(schedules.distinct(), (std::vector{schedules.at(brief), schedules.at(lengthy)}));
  EXPECT_NE(schedule_reason(causal, schedules.at(brief), hopper),
            schedule_reason(causal, schedules.at(lengthy), hopper));
}

TEST(BucketSchedules, FewQueriesOfAGroupShareATile) {
  const Target& hopper = target_by_name("sm_90a");
  const LaunchShape one{.batch = 8, .heads = 64, .seqlen_q = 1, .seqlen_kv = 8192};
  const AttentionSpec grouped = spec_of("{head_dim: 128, gqa_ratio: 12, mask: causal}");
  EXPECT_EQ(schedule_for(grouped, hopper, one).pack_group, 4);
  EXPECT_EQ(schedule_for(grouped, hopper, one).block_m, 64);
  EXPECT_EQ(choose_schedule(grouped, hopper).pack_group, 1);
  for (const char* apart :
       {"{head_dim: 128, mask: causal}", "{head_dim: 128, gqa_ratio: 7}",
        "{head_dim: 128, gqa_ratio: 4, alibi: true}", "{head_dim: 128, gqa_ratio: 4, layout: packed}"})
    EXPECT_EQ(schedule_for(spec_of(apart), hopper, one).pack_group, 1) << apart;
  EXPECT_EQ(schedule_for(grouped, target_by_name("sm_80"), one).pack_group, 1);
}

TEST(BucketSchedules, BlocksByHandHoldForEveryLaunch) {
  const Target& hopper = target_by_name("sm_90a");
  for (const char* blocks : {"{m: 192}", "{stages: 2}", "{family: sm90}", "{family: sm80}"}) {
    const AttentionSpec spec = spec_of("{head_dim: 64, mask: causal, blocks: " + std::string(blocks) + "}");
    EXPECT_EQ(bucket_schedules(spec, hopper).distinct().size(), 1u) << blocks;
  }
}

TEST(BucketSchedules, AreFewAndLegal) {
  for (const Target& target : targets())
    for (int dim : {8, 64, 72, 128, 256})
      for (const char* mask : {"none", "causal", "causal_top_left", "{window: [128, 0]}"}) {
        const AttentionSpec spec =
            spec_of("{head_dim: " + std::to_string(dim) + ", mask: " + std::string(mask) + "}");
        const std::vector<Schedule> distinct = bucket_schedules(spec, target).distinct();
        EXPECT_LE(distinct.size(), 3u);
        for (const Schedule& schedule : distinct)
          EXPECT_TRUE(illegal_because(spec, schedule, target).empty()) << describe(schedule);
      }
}

}  // namespace
}  // namespace tilewright
