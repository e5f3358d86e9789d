// Tuning records: files, merging, and which of them a spec gets.
#include "runtime/tuning_records.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/error.h"
#include "tests/support/runtime_support.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using test::ScopedEnvironment;
using test::TemporaryDirectory;

const GpuModel h200{"NVIDIA H200", "sm_90a", 132, 62914560, 150000000000};
const GpuModel h100{"NVIDIA H100 PCIe", "sm_90a", 114, 52428800, 80000000000};
const char* const llama = "{head_dim: 128, gqa_ratio: 4, mask: causal}";

AttentionSpec spec_of(const std::string& text) {
  return parse_spec(text, "spec");
}

Schedule hopper(int n) {
  return {Family::sm90, 128, n, 12, 2, false, true};
}

TuningRecord record_for(const std::string& spec, int n, const char* bucket = "long") {
  return {.spec = record_key(spec_of(spec)),
          .bucket = bucket,
          .shape = {2, 16, 8192, 8192},
          .best = {hopper(n), 800.5, 1.25},
          .usual = {hopper(128), 830, 2},
          .gain = 0.0369,
          .margin = 0.01,
          .driver = "580.1",
          .compiler = "NVRTC 13.0",
          .date = "2026-11-30",
          .tool = "0.1.0"};
}

ScheduleDecision decide(const TuningRecords& records, const std::string& spec, const GpuModel* gpu,
                        const char* bucket = "long", const char* target = "sm_90a") {
  return records.decide(spec_of(spec), target_by_name(target), gpu, bucket_by_name(bucket));
}

TEST(TuningRecords, AreWrittenAndReadBack) {
  TemporaryDirectory folder;
  const fs::path file = folder.path() / "deep" / record_file_name(h200);
  EXPECT_EQ(file.filename(), "nvidia-h200.yaml");
  merge_records(file, h200, {record_for(llama, 160), record_for(llama, 96, "few")});
  const RecordFile read = read_records(file);
  EXPECT_EQ(read.gpu.name, "NVIDIA H200");
  EXPECT_EQ(read.gpu.l2_bytes, h200.l2_bytes);
  ASSERT_EQ(read.records.size(), 2u);
  EXPECT_TRUE(read.skipped.empty());
  const TuningRecord& few = read.records[0];
  EXPECT_EQ(few.bucket, "few") << "in the order of the buckets";
  EXPECT_EQ(few.best.schedule, hopper(96));
  EXPECT_EQ(few.usual.schedule, hopper(128));
  EXPECT_EQ(few.best.microseconds, 800.5);
  EXPECT_EQ(few.margin, 0.01);
  EXPECT_EQ(few.spec, "head_dim: 128\ngqa_ratio: 4\nmask: causal\n");
  EXPECT_EQ(few.shape.seqlen_kv, 8192);
  EXPECT_EQ(few.driver, "580.1");
  EXPECT_EQ(record_text(read), test::read_text(file)) << "the same bytes for the same records";
}

TEST(TuningRecords, MergingKeepsWhatOthersMeasured) {
  TemporaryDirectory folder;
  const fs::path file = folder / "gpu.yaml";
  merge_records(file, h200, {record_for(llama, 160), record_for("{head_dim: 64}", 96)});
  merge_records(file, h200, {record_for(llama, 112)});
  EXPECT_EQ(read_records(file).records.size(), 2u);
  // Two processes at once.
  const std::vector<std::string> specs = {"{head_dim: 32}", "{head_dim: 96}", "{head_dim: 112}",
                                          "{head_dim: 256}"};
  std::vector<pid_t> children;
  for (const std::string& spec : specs)
    children.push_back(test::start_child([&] {
      for (int n : {32, 48, 64, 80}) merge_records(file, h200, {record_for(spec, n)});
      return 0;
    }));
  for (pid_t child : children) EXPECT_EQ(test::wait_for(child), 0);
  const RecordFile read = read_records(file);
  EXPECT_EQ(read.records.size(), 6u);
  for (const TuningRecord& record : read.records) {
    if (record.spec == "head_dim: 32\n") {
      EXPECT_EQ(record.best.schedule, hopper(80));
    }
  }
  EXPECT_EQ(test::files_below(folder.path()).size(), 1u) << "nothing temporary is left";
}

TEST(TuningRecords, ExactThenNearestThenDefault) {
  TemporaryDirectory folder;
  const TuningRecords none;
  EXPECT_EQ(decide(none, llama, &h200).source, ScheduleSource::default_rule);
  const Schedule usual = decide(none, llama, &h200).schedule;

  merge_records(folder / "h100.yaml", h100, {record_for(llama, 96)});
  merge_records(folder / "other.yaml", {"NVIDIA A100", "sm_80", 108, 1, 1}, {record_for(llama, 32)});
  const TuningRecords one({folder.path()});
  ScheduleDecision decision = decide(one, llama, &h200);
  EXPECT_EQ(decision.source, ScheduleSource::similar_gpu);
  EXPECT_EQ(decision.schedule, hopper(96));
  EXPECT_NE(decision.reason.find("NVIDIA H100 PCIe"), std::string::npos);

  merge_records(folder / "h200.yaml", h200, {record_for(llama, 160)});
  const TuningRecords both({folder.path()});
  decision = decide(both, llama, &h200);
  EXPECT_EQ(decision.source, ScheduleSource::record);
  EXPECT_EQ(decision.schedule, hopper(160));
  EXPECT_EQ(
      decision.reason,
      "measured on this GPU model: 3.7 % faster than the default, margin 1.0 %; bucket long, h200.yaml, "
      "2026-11-30");
  EXPECT_EQ(decide(both, llama, &h100).schedule, hopper(96));
  const GpuModel unknown{"NVIDIA H20", "sm_90a", 78, 1, 1};
  EXPECT_EQ(decide(both, llama, &unknown).schedule, hopper(96)) << "114 is nearer to 78 than 132";
  EXPECT_EQ(decide(both, llama, nullptr).schedule, hopper(160))
      << "a target alone stands for its typical GPU";
  EXPECT_EQ(decide(both, llama, &h200, "few").source, ScheduleSource::default_rule);
  EXPECT_EQ(decide(both, llama, &h200).schedule == usual, false);

  const BucketSchedules schedules = tuned_schedules(spec_of(llama), target_by_name("sm_90a"), &h200, both);
  EXPECT_EQ(schedules.by_bucket.back(), hopper(160));
  EXPECT_EQ(schedules.by_bucket.size(), shape_buckets().size());
}

TEST(TuningRecords, ABundleNeedsEverythingThatAnyGpuMayChoose) {
  TemporaryDirectory folder;
  merge_records(folder / "h100.yaml", h100, {record_for(llama, 96)});
  merge_records(folder / "h200.yaml", h200, {record_for(llama, 160)});
  const AttentionSpec spec = spec_of(llama);
  const Target& target = target_by_name("sm_90a");
  const std::vector<Schedule> list = possible_schedules(spec, target, TuningRecords({folder.path()}));
  for (const Schedule& schedule : {hopper(96), hopper(160), choose_schedule(spec, target)})
    EXPECT_EQ(std::count(list.begin(), list.end(), schedule), 1) << describe(schedule);
  EXPECT_EQ(possible_schedules(spec, target, {}), bucket_schedules(spec, target).distinct());
}

// Case J3.
TEST(TuningRecords, AnotherSpecIsAnotherSpec) {
  TemporaryDirectory folder;
  merge_records(folder / "h200.yaml", h200, {record_for(llama, 160)});
  const TuningRecords records({folder.path()});
  for (const char* other : {"{head_dim: 128, gqa_ratio: 4, mask: causal, layout: bhsd}",
                            "{head_dim: 128, gqa_ratio: 4, mask: causal, lse: true}",
                            "{head_dim: 128, gqa_ratio: 5, mask: causal}", "{head_dim: 128, gqa_ratio: 4}"})
    EXPECT_EQ(decide(records, other, &h200).source, ScheduleSource::default_rule) << other;
  EXPECT_EQ(decide(records, "{name: another, head_dim: 128, gqa_ratio: 4, mask: causal}", &h200).source,
            ScheduleSource::record);
  const ScheduleDecision own =
      decide(records, "{head_dim: 128, gqa_ratio: 4, mask: causal, blocks: {n: 64}}", &h200);
  EXPECT_EQ(own.source, ScheduleSource::own_blocks);
  EXPECT_EQ(own.schedule.block_n, 64);
  EXPECT_EQ(decide(records, llama, nullptr, "long", "sm_80").source, ScheduleSource::model)
      << "a record is for its own target";
}

TEST(TuningRecords, AnIllegalOneIsPassedOverWithAReason) {
  TemporaryDirectory folder;
  TuningRecord broken = record_for(llama, 160);
  broken.best.schedule.stages = 8;
  merge_records(folder / "h200.yaml", h200, {broken});
  merge_records(folder / "h100.yaml", h100, {record_for(llama, 96)});
  const ScheduleDecision decision = decide(TuningRecords({folder.path()}), llama, &h200);
  EXPECT_EQ(decision.schedule, hopper(96)) << "the next one in line";
  ASSERT_EQ(decision.skipped.size(), 1u);
  EXPECT_NE(decision.skipped[0].find("bytes of shared memory"), std::string::npos) << decision.skipped[0];
}

TEST(TuningRecords, DamagedFilesAndEntriesAreAdviceThatIsLost) {
  TemporaryDirectory folder;
  const fs::path good = folder / "h200.yaml";
  merge_records(good, h200, {record_for(llama, 160), record_for("{head_dim: 64}", 96)});
  std::string text = test::read_text(good);
  text.replace(text.find("bucket: long"), 12, "bucket: size");
  test::write_text(folder / "b.yaml", text);
  test::write_text(folder / "c.yaml", "gpu: {name: [");
  test::write_text(folder / "d.yaml", "- a list\n");
  test::write_text(folder / "e.yaml", std::string("\0\1\2", 3));
  test::write_text(folder / "notes.txt", "no records");
  fs::create_directory(folder / "f.yaml");
  const TuningRecords records({folder.path(), folder / "absent"});
  EXPECT_EQ(records.files().size(), 2u);
  EXPECT_EQ(records.problems().size(), 4u);
  for (const std::string& problem : records.problems())
    EXPECT_NE(problem.find(folder.path().string()), std::string::npos) << problem;
  const RecordFile half = read_records(folder / "b.yaml");
  EXPECT_EQ(half.records.size(), 1u);
  ASSERT_EQ(half.skipped.size(), 1u);
  EXPECT_NE(half.skipped[0].find("unknown shape bucket \"size\""), std::string::npos) << half.skipped[0];
  // What this version cannot read is not thrown away by a merge.
  EXPECT_THROW(merge_records(folder / "b.yaml", h200, {record_for(llama, 96)}), Error);
  EXPECT_EQ(test::read_text(folder / "b.yaml"), text);
}

TEST(TuningRecords, TheUsersOwnComeFirst) {
  TemporaryDirectory own, shipped;
  merge_records(own / "h200.yaml", h200, {record_for(llama, 96)});
  merge_records(shipped / "h200.yaml", h200, {record_for(llama, 160), record_for("{head_dim: 64}", 80)});
  const TuningRecords records({own.path(), shipped.path()});
  EXPECT_EQ(decide(records, llama, &h200).schedule, hopper(96));
  EXPECT_EQ(decide(records, "{head_dim: 64}", &h200).schedule, hopper(80));
  const ScopedEnvironment variable("TILEWRIGHT_RECORDS_DIR", own.path().string());
  EXPECT_EQ(record_directories(std::nullopt).front(), own.path());
  EXPECT_EQ(record_directories(shipped.path()).front(), shipped.path());
}

}  // namespace
}  // namespace tilewright
