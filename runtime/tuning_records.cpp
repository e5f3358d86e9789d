#include "runtime/tuning_records.h"

#include <algorithm>
#include <cstdlib>

#include "codegen/cost_model.h"
#include "codegen/error.h"
#include "codegen/model_choice.h"
#include "runtime/environment.h"
#include "runtime/own_directories.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * fraction);
  return text;
}

const TuningRecord* find_record(const RecordFile& file, const std::string& key, std::string_view bucket) {
  for (const TuningRecord& record : file.records)
    if (record.bucket == bucket && record.spec == key) return &record;
  return nullptr;
}

std::string reason_text(const RecordFile& file, const TuningRecord& record, bool same_gpu) {
  const std::string measured =
      record.best.schedule == record.usual.schedule
          ? "the default, which nothing beat by " + percent(record.margin)
          : percent(record.gain) + " faster than the default, margin " + percent(record.margin);
  return (same_gpu ? "measured on this GPU model: "
                   : "measured on " + file.gpu.name + ", the nearest GPU of the target (" +
                         std::to_string(file.gpu.multiprocessors) + " multiprocessors): ") +
         measured + "; bucket " + record.bucket + ", " + file.path.filename().string() + ", " + record.date;
}

}  // namespace

std::string_view name_of(ScheduleSource source) {
  switch (source) {
    case ScheduleSource::own_blocks:
      return "blocks";
    case ScheduleSource::record:
      return "record";
    case ScheduleSource::similar_gpu:
      return "record of the same generation";
    case ScheduleSource::model:
      return "model";
    case ScheduleSource::default_rule:
      return "default rule";
  }
  return "";
}

std::string record_key(const AttentionSpec& spec) {
  AttentionSpec plain = spec;
  plain.blocks = {};
  return canonical_form(plain);
}

TuningRecords::TuningRecords(const std::vector<fs::path>& directories) {
  for (const fs::path& directory : directories) {
    std::vector<fs::path> paths;
    std::error_code error;
    for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
      if (entry->path().extension() == ".yaml") paths.push_back(entry->path());
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) {
      try {
        files_.push_back(read_records(path));
      } catch (const Error& problem) {
        problems_.push_back(problem.what());
      }
    }
  }
}

ScheduleDecision TuningRecords::decide(const AttentionSpec& spec, const Target& target, const GpuModel* gpu,
                                       const ShapeBucket& bucket) const {
  ScheduleDecision decision;
  decision.schedule = choose_schedule(spec, target, bucket);
  if (spec.blocks != BlockRequest{}) {
    decision.source = ScheduleSource::own_blocks;
    decision.reason = schedule_reason(spec, decision.schedule, target);
    return decision;
  }
  const int multiprocessors = gpu ? gpu->multiprocessors : typical_gpu(target).multiprocessors;
  const auto is_same = [&](const RecordFile& file) {
    return gpu && file.gpu.name == gpu->name && file.gpu.multiprocessors == gpu->multiprocessors;
  };
  std::vector<const RecordFile*> candidates;
  for (const RecordFile& file : files_)
    if (file.gpu.target == target.name) candidates.push_back(&file);
  std::stable_sort(candidates.begin(), candidates.end(), [&](const RecordFile* a, const RecordFile* b) {
    if (is_same(*a) != is_same(*b)) return is_same(*a);
    return std::abs(a->gpu.multiprocessors - multiprocessors) <
           std::abs(b->gpu.multiprocessors - multiprocessors);
  });
  const std::string key = record_key(spec);
  for (const RecordFile* file : candidates) {
    const TuningRecord* record = find_record(*file, key, bucket.name);
    if (!record) continue;
    const auto reasons = illegal_because(spec, record->best.schedule, target);
    if (!reasons.empty()) {
      decision.skipped.push_back(file->path.string() + ", bucket " + record->bucket + ": " +
                                 describe(record->best.schedule) + " is not legal: " + reasons.front());
      continue;
    }
    decision.schedule = record->best.schedule;
    decision.source = is_same(*file) ? ScheduleSource::record : ScheduleSource::similar_gpu;
    decision.gpu = file->gpu.name;
    decision.reason = reason_text(*file, *record, is_same(*file));
    return decision;
  }
  if (auto choice = model_choice(spec, target, bucket)) {
    decision.schedule = choice->schedule;
    decision.source = ScheduleSource::model;
    decision.reason = std::move(choice->reason);
    return decision;
  }
  decision.reason = schedule_reason(spec, decision.schedule, target);
  return decision;
}

std::optional<fs::path> user_record_directory(const std::optional<fs::path>& given) {
  if (given) return given;
  if (const auto named = environment(Variable::records_directory)) return *named;
  const char *data = std::getenv("XDG_DATA_HOME"), *home = std::getenv("HOME");
  if (data && *data) return fs::path(data) / "tilewright" / "tuned";
  if (home && *home) return fs::path(home) / ".local" / "share" / "tilewright" / "tuned";
  return std::nullopt;
}

std::vector<fs::path> record_directories(const std::optional<fs::path>& given) {
  std::vector<fs::path> directories;
  if (const auto own = user_record_directory(given)) directories.push_back(*own);
  // Installed: <prefix>/lib or bin; a checkout: <checkout>/build.
  std::error_code error;
  for (const fs::path& own : own_directories())
    for (const char* place : {"../share/tilewright/specs/tuned", "../specs/tuned"})
      if (fs::is_directory(own / place, error)) {
        directories.push_back(fs::weakly_canonical(own / place, error));
        break;
      }
  std::vector<fs::path> once;
  for (const fs::path& directory : directories)
    if (std::find(once.begin(), once.end(), directory) == once.end()) once.push_back(directory);
  return once;
}

std::vector<Schedule> possible_schedules(const AttentionSpec& spec, const Target& target,
                                         const TuningRecords& records) {
  std::vector<Schedule> list = tuned_schedules(spec, target, nullptr, {}).distinct();
  const auto add = [&](const GpuModel* gpu) {
    for (const Schedule& schedule : tuned_schedules(spec, target, gpu, records).distinct())
      if (std::find(list.begin(), list.end(), schedule) == list.end()) list.push_back(schedule);
  };
  add(nullptr);
  for (const RecordFile& file : records.files())
    if (file.gpu.target == target.name) add(&file.gpu);
  return list;
}

BucketSchedules tuned_schedules(const AttentionSpec& spec, const Target& target, const GpuModel* gpu,
                                const TuningRecords& records) {
  BucketSchedules schedules;
  for (const ShapeBucket& bucket : shape_buckets())
    schedules.by_bucket.push_back(records.decide(spec, target, gpu, bucket).schedule);
  return schedules;
}

}  // namespace tilewright
