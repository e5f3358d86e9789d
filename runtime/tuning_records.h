// Tuning records: measured schedules, one YAML file for each GPU model, written by `tilewright tune`.
//
// Records are advice. A file that cannot be read, or a record whose schedule is not legal any more, is passed
// over with a reason; a driver or compiler of another version changes nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "codegen/launch_plan.h"
#include "codegen/schedule.h"
#include "codegen/shape_bucket.h"
#include "codegen/spec.h"

namespace tilewright {

/// A GPU model, as a file of records is for one.
struct GpuModel {
  std::string name;    // "NVIDIA H200"
  std::string target;  // "sm_90a"
  int multiprocessors = 0;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
};

struct MeasuredSchedule {
  Schedule schedule;
  double microseconds = 0;  // median
  double deviation = 0;     // median absolute deviation from it
};

struct TuningRecord {
  /// Canonical form of the spec, without `blocks`: another layout or LSE is another spec.
  std::string spec;
  std::string bucket;            // name of a shape bucket
  LaunchShape shape;             // that was timed
  MeasuredSchedule best, usual;  // `usual`: what the default rule would have chosen
  double gain = 0;               // time of the usual schedule over the best one's, minus 1
  double margin = 0;             // what a schedule had to be faster by
  std::string driver, compiler, date, tool;
};

struct RecordFile {
  std::filesystem::path path;
  GpuModel gpu;
  std::vector<TuningRecord> records;
  std::vector<std::string> skipped;  // records that could not be read, and why
};

/// Throws Error(environment) if it cannot be read, Error(spec) that names line and column if it is no file of
/// records.
RecordFile read_records(const std::filesystem::path& file);
/// The same of a text that was read from `file`.
RecordFile parse_records(const std::string& text, const std::filesystem::path& file);
/// The text of a file: records in order of spec and bucket, the same for the same records.
std::string record_text(const RecordFile& file);
/// Puts records into the file, whatever it holds for other specs and buckets stays; another process's too.
/// The file appears at once or not at all. Throws Error(environment).
void merge_records(const std::filesystem::path& file, const GpuModel& gpu, std::vector<TuningRecord> records);
/// "nvidia-h200.yaml"
std::string record_file_name(const GpuModel& gpu);

/// Canonical form of a spec without `blocks`.
std::string record_key(const AttentionSpec& spec);

/// What gave a schedule, in the order of asking.
enum class ScheduleSource { own_blocks, record, similar_gpu, model, default_rule };
/// "blocks", "record", "record of the same generation", "model", "default rule"
std::string_view name_of(ScheduleSource source);

struct ScheduleDecision {
  Schedule schedule;
  ScheduleSource source = ScheduleSource::default_rule;
  std::string gpu;                   // whose record it is
  std::string reason;                // one sentence
  std::vector<std::string> skipped;  // records passed over, and why
};

class TuningRecords {
 public:
  /// All files of the directories, which come in order of precedence. Nothing is thrown: see problems().
  explicit TuningRecords(const std::vector<std::filesystem::path>& directories);
  TuningRecords() = default;

  /// The schedule for a bucket: the spec's own blocks; a record of this very GPU; one of the same target, of
  /// the GPU with the nearest number of multiprocessors; the model, for a target that the default rule was
  /// not measured on; the default rule. `gpu` null: not known, the target's typical one. Throws as
  /// choose_schedule.
  ScheduleDecision decide(const AttentionSpec& spec, const Target& target, const GpuModel* gpu,
                          const ShapeBucket& bucket = long_bucket()) const;

  const std::vector<RecordFile>& files() const { return files_; }
  /// Files that could not be read, and why.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  std::vector<RecordFile> files_;
  std::vector<std::string> problems_;
};

/// The user's own records: the given directory, else TILEWRIGHT_RECORDS_DIR, else
/// $XDG_DATA_HOME/tilewright/tuned, else
/// ~/.local/share/tilewright/tuned; nothing without a home.
std::optional<std::filesystem::path> user_record_directory(const std::optional<std::filesystem::path>& given);
/// Where records are looked for: the user's own, then those that ship.
std::vector<std::filesystem::path> record_directories(const std::optional<std::filesystem::path>& given);

/// Every schedule that a runtime may choose for the spec: without records, and by the records of each GPU
/// model of the target. Without repetition.
std::vector<Schedule> possible_schedules(const AttentionSpec& spec, const Target& target,
                                         const TuningRecords& records);

/// decide() for every bucket.
BucketSchedules tuned_schedules(const AttentionSpec& spec, const Target& target, const GpuModel* gpu,
                                const TuningRecords& records);

}  // namespace tilewright
