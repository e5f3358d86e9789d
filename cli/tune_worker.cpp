// One GPU's part of `tilewright tune`, in a process of its own.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <algorithm>

#include <cmath>
#include <ctime>
#include <memory>

#include "cli/failure.h"
#include "cli/tune.h"
#include "codegen/error.h"
#include "runtime/file_lock.h"
#include "runtime/nvrtc.h"
#include "runtime/precompile.h"
#include "tuner/child_process.h"
#include "tuner/gate.h"
#include "tuner/message.h"

namespace tilewright::cli {
namespace {

constexpr int progress_message = 0, outcome_message = 1;

std::string today() {
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
}

Json shape_json(const LaunchShape& shape) {
  return {{"batch", shape.batch},
          {"heads", shape.heads},
          {"seqlen_q", shape.seqlen_q},
          {"seqlen_kv", shape.seqlen_kv}};
}

Json blocks_json(const Schedule& schedule) {
  Json json = {{"family", name_of(schedule.family)},
               {"m", schedule.block_m},
               {"n", schedule.block_n},
               {"warps", schedule.warps},
               {"stages", schedule.stages}};
  json["query_in_registers"] = schedule.query_in_registers;
  json["ping_pong"] = schedule.ping_pong;
  json["pack_group"] = schedule.pack_group;
  json["cluster"] = schedule.cluster;
  if (schedule.order >= 0) json["order"] = order_name(schedule);
  return json;
}

Json candidate_json(const TunedSpec& tuned, const TunedBucket& bucket, size_t place,
                    const CandidateFigures& figures) {
  const TunedCandidate& candidate = tuned.candidates[bucket.candidates[place]];
  Json json = {{"schedule", describe(candidate.schedule)},
               {"blocks", blocks_json(candidate.schedule)},
               {"predicted", bucket.predicted[place]}};
  const std::string& refused = candidate.refused.empty() ? figures.failure : candidate.refused;
  if (!refused.empty()) json["refused"] = refused;
  json["registers"] = candidate.report.registers;
  if (figures.samples.empty()) return json;
  json["median"] = figures.median;
  json["deviation"] = figures.deviation;
  json["slower"] = figures.slower;
  json["finalist"] = figures.finalist;
  Json samples = Json::array();
  for (double sample : figures.samples) samples.push_back(std::round(sample * 100) / 100);
  json["samples"] = samples;
  return json;
}

Json bucket_json(const AttentionSpec& spec, const TunedSpec& tuned, const TunedBucket& bucket) {
  const Selection& selection = bucket.selection;
  const IoModel io = model_io(spec, tuned.candidates[bucket.candidates[0]].schedule, bucket.shape);
  Json json = {{"bucket", bucket.bucket->name},
               {"shape", shape_json(bucket.shape)},
               {"flops", io.work.needed},
               {"bytes", io.traffic.tiled_least()},
               {"winner", selection.winner},
               {"gain", selection.gain},
               {"margin", selection.margin},
               {"rounds", selection.rounds},
               {"throttled", selection.throttled},
               {"out_of_time", selection.out_of_time},
               {"correlation", bucket.correlation},
               {"timed", bucket.timed},
               {"note", selection.note}};
  if (bucket.sweep) json["behind_best"] = bucket.behind_best;
  const Selection& measured = bucket.sweep ? *bucket.sweep : selection;
  Json list = Json::array();
  for (size_t i = 0; i < bucket.candidates.size(); ++i)
    list.push_back(candidate_json(tuned, bucket, i, measured.candidates[i]));
  json["candidates"] = list;
  return json;
}

class Worker {
 public:
  Worker(Channel& channel, const GpuOfHost& gpu, TuneSettings settings)
      : channel_(channel),
        gpu_(gpu),
        target_(target_by_name(gpu.gpu.target)),
        settings_(std::move(settings)) {
    figures_ = typical_gpu(target_);
    figures_.multiprocessors = gpu.gpu.multiprocessors;
    figures_.l2_bytes = static_cast<double>(gpu.gpu.l2_bytes);
    if (gpu.megahertz > 0) figures_.gigahertz = 0.9e-3 * gpu.megahertz;
  }

  TuneOutcome tune_job(const TuneJob& job, double seconds) {
    TuneOutcome outcome;
    outcome.json = {{"spec", job.title},
                    {"file", job.file},
                    {"gpu", gpu_.gpu.name},
                    {"ordinal", gpu_.ordinal},
                    {"key", record_key(job.spec)}};
    try {
      require_tunable(job.spec, target_);
    } catch (const Error& error) {
      outcome.failure = error.what();
      outcome.skipped = true;
      return outcome;
    }
    AttentionSpec spec = job.spec;
    spec.name.clear();
    // Made once, here: every process that checks candidates starts with a copy.
    Gate gate(spec);
    TuneOptions options = settings_.options;
    options.seconds = seconds;
    const TunedSpec tuned = tune(spec, target_, figures_, parts(spec, gate), options);
    fill(outcome, spec, tuned);
    return outcome;
  }

 private:
  TuneParts parts(const AttentionSpec& spec, Gate& gate) {
    TuneParts parts;
    parts.compile = [this, &spec](const std::vector<Schedule>& schedules,
                                  const std::function<void(size_t)>& done) {
      RuntimeOptions options;
      options.cache_directory = settings_.cache_directory;
      std::vector<PrecompileJob> jobs;
      for (const Schedule& schedule : schedules)
        jobs.push_back({spec.name, spec, &target_, schedule, gpu_.as_ptx});
      std::vector<CompileOutcome> outcomes;
      for (const PrecompileResult& result :
           precompile(jobs, options, static_cast<size_t>(std::max(1, settings_.jobs)),
                      [&](size_t index, const PrecompileResult&) { done(index); }))
        outcomes.push_back({result.entry.compiled.report, result.failure});
      return outcomes;
    };
    parts.bench = [this, &spec, &gate](const std::vector<Schedule>& schedules) -> BenchFactory {
      const GpuBenchOptions options{gpu_.ordinal, gpu_.gpu, settings_.cache_directory};
      return [schedules, options, &spec, &gate] { return make_gpu_bench(spec, schedules, gate, options); };
    };
    parts.progress = [this](const TuneProgress& progress) {
      channel_.send(MessageWriter()
                        .put(progress_message)
                        .put(progress.stage)
                        .put(progress.done)
                        .put(progress.total)
                        .put(progress.gain)
                        .bytes());
    };
    return parts;
  }

  void fill(TuneOutcome& outcome, const AttentionSpec& spec, const TunedSpec& tuned) {
    RecordFile file{.gpu = gpu_.gpu};
    Json buckets = Json::array();
    for (const TunedBucket& bucket : tuned.buckets) {
      buckets.push_back(bucket_json(spec, tuned, bucket));
      if (bucket.selection.winner >= 0) file.records.push_back(record(spec, tuned, bucket));
    }
    outcome.records = record_text(file);
    outcome.json["driver"] = gpu_.driver;
    outcome.json["points"] = tuned.space.points;
    outcome.json["legal"] = tuned.space.legal.size();
    outcome.json["compiled"] = tuned.candidates.size();
    outcome.json["compile_seconds"] = tuned.compile_seconds;
    outcome.json["check_seconds"] = tuned.check_seconds;
    outcome.json["timing_seconds"] = tuned.timing_seconds;
    outcome.json["buckets"] = buckets;
    if (file.records.empty()) outcome.failure = tuned.buckets.front().selection.note;
  }

  TuningRecord record(const AttentionSpec& spec, const TunedSpec& tuned, const TunedBucket& bucket) const {
    const auto measured = [&](size_t place) {
      const CandidateFigures& figures = bucket.selection.candidates[place];
      return MeasuredSchedule{tuned.candidates[bucket.candidates[place]].schedule, figures.median,
                              figures.deviation};
    };
    const TunedCandidate& winner = tuned.candidates[bucket.winner()];
    return {.spec = record_key(spec),
            .bucket = std::string(bucket.bucket->name),
            .shape = bucket.shape,
            .best = measured(static_cast<size_t>(bucket.selection.winner)),
            .usual = measured(0),
            .gain = bucket.selection.gain,
            .margin = bucket.selection.margin,
            .driver = gpu_.driver,
            .compiler = winner.report.compiler,
            .date = today(),
            .tool = std::string(version())};
  }

  Channel& channel_;
  const GpuOfHost& gpu_;
  const Target& target_;
  TuneSettings settings_;
  GpuFigures figures_;
};

/// One tuner a GPU, or both would measure each other.
std::unique_ptr<FileLock> lock_gpu(const GpuOfHost& gpu) {
  std::string place = gpu.pci_bus;
  for (char& c : place)
    if (c == ':' || c == '.') c = '-';
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("tilewright-gpu-" + place + ".lock");
  auto lock = std::make_unique<FileLock>(file, std::chrono::seconds(1));
  if (lock->held()) return lock;
  remark(fmt::format("GPU {} is being tuned by another process ({}); waiting for it, an hour at most",
                     gpu.ordinal, file.string()));
  return std::make_unique<FileLock>(file, std::chrono::hours(1));
}

}  // namespace

std::string tune_request(size_t job, double seconds) {
  return MessageWriter().put(static_cast<int64_t>(job)).put(seconds).bytes();
}

TuneMessage read_tune_message(const std::string& bytes) {
  MessageReader reader(bytes);
  TuneMessage message;
  message.done = reader.integer() == outcome_message;
  if (message.done) {
    message.outcome.failure = reader.text();
    message.outcome.skipped = reader.integer() != 0;
    message.outcome.records = reader.text();
    message.outcome.json = Json::parse(reader.text());
  } else {
    message.progress.stage = reader.text();
    message.progress.done = reader.small_integer();
    message.progress.total = reader.small_integer();
    message.progress.gain = reader.real();
  }
  return message;
}

void serve_tuning(Channel& channel, const GpuOfHost& gpu, const std::vector<TuneJob>& jobs,
                  TuneSettings settings) {
  Worker worker(channel, gpu, std::move(settings));
  const auto lock = lock_gpu(gpu);
  while (const auto request = channel.receive()) {
    MessageReader reader(*request);
    const TuneJob& job = jobs.at(static_cast<size_t>(reader.integer()));
    TuneOutcome outcome;
    try {
      outcome = worker.tune_job(job, reader.real());
    } catch (const std::exception& error) {
      outcome.failure = error.what();
      outcome.json = {{"spec", job.title}, {"file", job.file}};
    }
    channel.send(MessageWriter()
                     .put(outcome_message)
                     .put(outcome.failure)
                     .put(outcome.skipped ? 1 : 0)
                     .put(outcome.records)
                     .put(outcome.json.dump(-1, ' ', false, Json::error_handler_t::replace))
                     .bytes());
  }
}

}  // namespace tilewright::cli
