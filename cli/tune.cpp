// tilewright tune: measured schedules for specs, on the GPUs of this machine.
#include "cli/tune.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <fstream>
#include <memory>
#include <thread>

#include "cli/choices.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "codegen/error.h"
#include "runtime/cache.h"
#include "runtime/compile_limits.h"
#include "tilewright/tilewright.hpp"
#include "tuner/worker_pool.h"

namespace tilewright::cli {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> files;
  bool dry_run = false;
  std::string target;
  std::string budget;
  int jobs = 0;
  bool resume = false;
  std::vector<int> devices;
  std::vector<std::string> buckets;
  int candidates = 40;
  bool exhaustive = false;
  std::string records, log;
  uint64_t seed = 1;
  bool json = false;
};

volatile sig_atomic_t interrupted = 0;
void note_interrupt(int) {
  interrupted = 1;
}
constexpr int exit_interrupted = 130;  // 128 + SIGINT, as shells have it

/// "90", "90s", "15m", "2h" in seconds.
double seconds_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double scale = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (end == text.c_str() || scale == 0 || !(value > 0) || value > 1e6)
    throw Error(ErrorKind::usage,
                "--budget " + text + " is no time; expected a number above 0 with s, m or h, as in 120s");
  return value * scale;
}

std::string minutes_text(double seconds) {
  const int whole = static_cast<int>(seconds + 0.5);
  return whole < 60 ? fmt::format("{} s", whole) : fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

/// One line on stderr that is written over; without a terminal, a line for each spec that is finished.
class ProgressLine {
 public:
  void show(const std::string& text) {
    if (!terminal_ || text == shown_) return;
    fmt::print(stderr, "\r{}{}", text,
               std::string(shown_.size() > text.size() ? shown_.size() - text.size() : 0, ' '));
    shown_ = text;
  }
  void line(const std::string& text) {
    clear();
    remark(text);
  }
  void clear() {
    if (!shown_.empty()) fmt::print(stderr, "\r{}\r", std::string(shown_.size(), ' '));
    shown_.clear();
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  std::string shown_;
};

/// GPUs of one model share a queue of specs.
struct Queue {
  GpuModel model;
  int number;  // in the pool
};

struct Worker {
  GpuOfHost gpu;
  int queue;                  // in the pool
  std::optional<size_t> job;  // at hand
  TuneProgress progress;
};

class TuneCommand {
 public:
  explicit TuneCommand(const Options& options) : options_(options) {}

  int run() {
    load_jobs();
    for (const std::string& name : options_.buckets)
      settings_.options.buckets.push_back(&bucket_by_name(name));
    settings_.options.candidates = options_.candidates;
    settings_.options.exhaustive = options_.exhaustive;
    settings_.options.seed = options_.seed;
    if (options_.dry_run) return dry_run();
    budget_ = options_.budget.empty() ? 1e9 : seconds_of(options_.budget);
    const auto directory = user_record_directory(
        options_.records.empty() ? std::nullopt : std::optional<fs::path>(options_.records));
    if (!directory)
      throw Error(ErrorKind::usage,
                  "nowhere to put records: give --records DIRECTORY, or set TILEWRIGHT_RECORDS_DIR");
    directory_ = *directory;
    choose_cache();
    start_workers();
    signal(SIGINT, note_interrupt);
    serve();
    return finish();
  }

 private:
  void load_jobs() {
    for (const std::string& file : options_.files) {
      try {
        AttentionSpec spec = load_spec(file);
        std::string title = title_of(spec, file);
        jobs_.push_back({file, std::move(title), std::move(spec)});
      } catch (const Error& error) {
        fail(report(error));
      }
    }
  }

  void fail(int code) {
    if (code_ == exit_ok) code_ = code;
  }

  int dry_run() {
    const Target& target = chosen_target(options_.target);
    Json list = Json::array();
    for (const TuneJob& job : jobs_) {
      try {
        print_dry_run(job, target, settings_, options_.json, list);
      } catch (const Error& error) {
        remark(job.title + " is skipped: " + error.what());
      }
    }
    if (options_.json) print_json(list);
    return code_;
  }

  /// Candidates are compiled in one process and run in another: the cache must be on disk.
  void choose_cache() {
    const KernelCache cache({});
    if (cache.directory()) {
      settings_.cache_directory = cache.directory()->path();
      return;
    }
    std::string name = (fs::temp_directory_path() / "tilewright-tune-XXXXXX").string();
    if (!mkdtemp(name.data()))
      throw Error(ErrorKind::environment, "cannot make a directory for compiled kernels");
    settings_.cache_directory = name;
    own_cache_ = name;
  }

  void start_workers() {
    std::vector<GpuOfHost> gpus;
    for (GpuOfHost& gpu : gpus_of_host()) {
      const bool wanted =
          options_.devices.empty() ||
          std::find(options_.devices.begin(), options_.devices.end(), gpu.ordinal) != options_.devices.end();
      if (!wanted) continue;
      if (!gpu.refused.empty())
        remark(fmt::format("GPU {} ({}) is left out: {}", gpu.ordinal, gpu.gpu.name, gpu.refused));
      else
        gpus.push_back(std::move(gpu));
    }
    if (gpus.empty())
      throw Error(ErrorKind::usage, "no GPU to tune on; `tilewright doctor` lists what is there");
    int jobs = options_.jobs;
    if (jobs == 0)
      jobs = compiles_at_once(static_cast<int>(std::thread::hardware_concurrency()), available_memory());
    settings_.jobs = std::max(1, jobs / static_cast<int>(gpus.size()));
    for (const GpuOfHost& gpu : gpus) {
      const int queue = queue_of(gpu.gpu);
      workers_.push_back({gpu, queue, std::nullopt, {}});
      pool_.add_worker(queue,
                       [this, gpu](Channel& channel) { serve_tuning(channel, gpu, jobs_, settings_); });
    }
  }

  int queue_of(const GpuModel& model) {
    for (const Queue& queue : queues_)
      if (queue.model.name == model.name && queue.model.multiprocessors == model.multiprocessors)
        return queue.number;
    std::deque<size_t> jobs;
    for (size_t i = 0; i < jobs_.size(); ++i)
      if (!options_.resume || !has_records(model, jobs_[i])) jobs.push_back(i);
    total_ += jobs.size();
    queues_.push_back({model, pool_.add_queue(std::move(jobs))});
    return queues_.back().number;
  }

  bool has_records(const GpuModel& model, const TuneJob& job) {
    const TuningRecords records({directory_});
    std::vector<const ShapeBucket*> buckets = settings_.options.buckets;
    if (buckets.empty())
      for (const ShapeBucket& bucket : shape_buckets()) buckets.push_back(&bucket);
    const Target& target = target_by_name(model.target);
    for (const ShapeBucket* bucket : buckets) {
      try {
        if (records.decide(job.spec, target, &model, *bucket).source != ScheduleSource::record) return false;
      } catch (const Error&) {
        return false;  // whatever is wrong with the spec is said when its turn comes
      }
    }
    remark(job.title + ": has records already");
    return true;
  }

  void serve() {
    pool_.run(
        {.request = [this](int worker, size_t job, size_t waiting) { return request(worker, job, waiting); },
         .hear = [this](int worker, size_t, const std::string& bytes) { return hear(worker, bytes); },
         .lost = [this](int worker, size_t job, const std::string& end) { lose(worker, job, end); },
         .go_on =
             [this] {
               show_progress();
               return !interrupted;
             }});
    progress_.clear();
  }

  std::optional<std::string> request(int number, size_t job, size_t waiting) {
    const double left = budget_ - seconds();
    if (left <= 0) {
      progress_.line(jobs_[job].title + ": not tuned, the budget is used up");
      return std::nullopt;
    }
    Worker& worker = workers_[static_cast<size_t>(number)];
    const double share = left * pool_.workers_of(worker.queue) / static_cast<double>(waiting + 1);
    worker.job = job;
    return tune_request(job, std::min(share, left));
  }

  /// True: the worker's job is done.
  bool hear(int number, const std::string& bytes) {
    Worker& worker = workers_[static_cast<size_t>(number)];
    TuneMessage message = read_tune_message(bytes);
    worker.progress = message.progress;
    if (!message.done) return false;
    take(worker, message.outcome);
    worker.job.reset();
    return true;
  }

  void lose(int number, size_t job, const std::string& end) {
    Worker& worker = workers_[static_cast<size_t>(number)];
    ++done_;
    progress_.line(fmt::format("[{}/{}] {}: error: the process that tuned it on GPU {} {}", done_, total_,
                               jobs_[job].title, worker.gpu.ordinal, end));
    fail(exit_internal);
    worker.job.reset();
    worker.progress = {};
  }

  void take(Worker& worker, TuneOutcome& outcome) {
    const TuneJob& job = jobs_[*worker.job];
    ++done_;
    if (!outcome.failure.empty()) {
      outcome.json[outcome.skipped ? "skipped" : "failure"] = outcome.failure;
      progress_.line(job.title + (outcome.skipped ? " is skipped: " : ": error: ") + outcome.failure);
      if (!outcome.skipped) fail(exit_internal);
    } else {
      const fs::path file = directory_ / record_file_name(worker.gpu.gpu);
      merge_records(file, worker.gpu.gpu, parse_records(outcome.records, file).records);
      progress_.line(fmt::format("[{}/{}] {}: {}", done_, total_, job.title, summary(outcome.json)));
      write_log(outcome.json);
    }
    results_.push_back({*worker.job, worker.gpu.gpu.name, std::move(outcome.json)});
  }

  static std::string summary(const Json& json) {
    std::string text;
    for (const Json& bucket : json["buckets"]) {
      if (!text.empty()) text += ", ";
      text += fmt::format("{} {:+.1f} %", bucket["bucket"].get<std::string>(),
                          100 * bucket["gain"].get<double>());
    }
    return text +
           fmt::format(" over the default; {} compiled in {:.1f} s, checked in {:.1f} s, timed in {:.1f} s",
                       json["compiled"].get<int>(), json["compile_seconds"].get<double>(),
                       json["check_seconds"].get<double>(), json["timing_seconds"].get<double>());
  }

  /// A line for each bucket, with every sample of every candidate.
  void write_log(const Json& json) {
    if (options_.log.empty()) return;
    std::ofstream stream(options_.log, std::ios::app);
    for (const Json& bucket : json["buckets"]) {
      Json line = {{"spec", json["spec"]}, {"key", json["key"]}, {"gpu", json["gpu"]}};
      line.update(bucket);
      stream << line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
    }
    stream.flush();
    if (!stream) throw Error(ErrorKind::environment, "cannot write the log " + options_.log);
  }

  void show_progress() {
    std::string text = fmt::format("[{}/{}]", done_, total_);
    for (const Worker& worker : workers_) {
      if (!worker.job) continue;
      const TuneProgress& p = worker.progress;
      text += fmt::format(" GPU {}: {} {} {}/{}", worker.gpu.ordinal, jobs_[*worker.job].title,
                          p.stage.empty() ? "starting" : p.stage, p.done, p.total);
      if (p.gain > 0) text += fmt::format(", best {:+.1f} %", 100 * p.gain);
      text += ";";
    }
    if (done_ > 0 && done_ < total_)
      text += " " +
              minutes_text(seconds() / static_cast<double>(done_) * static_cast<double>(total_ - done_)) +
              " left";
    progress_.show(text);
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  int finish() {
    std::error_code ignored;
    if (!own_cache_.empty()) fs::remove_all(own_cache_, ignored);
    std::stable_sort(results_.begin(), results_.end(), [](const Result& a, const Result& b) {
      return a.job != b.job ? a.job < b.job : a.gpu < b.gpu;
    });
    if (options_.json) {
      Json list = Json::array();
      for (Result& result : results_) list.push_back(std::move(result.json));
      print_json(list);
    } else {
      print_table();
    }
    for (const Queue& queue : queues_)
      remark(fmt::format("records: {}", (directory_ / record_file_name(queue.model)).string()));
    if (!interrupted) return code_;
    remark(fmt::format("interrupted; {} of {} specs are tuned, and their records kept", done_, total_));
    return exit_interrupted;
  }

  void print_table() {
    Table table(
        {"spec", "bucket", "best", "default", "best us", "gain", "margin", "model rank", "timed", "refused"});
    for (const Result& result : results_) {
      if (!result.json.contains("buckets")) continue;
      for (const Json& bucket : result.json["buckets"]) add_row(table, result.json, bucket);
    }
    table.print();
  }

  void add_row(Table& table, const Json& json, const Json& bucket) {
    const Json& candidates = bucket["candidates"];
    const int winner = bucket["winner"];
    if (winner < 0) return;
    int refused = 0;
    for (const Json& candidate : candidates) refused += candidate.contains("refused");
    const Json& best = candidates[static_cast<size_t>(winner)];
    const auto microseconds = [](const Json& candidate) {
      return candidate.contains("median") ? fmt::format("{:.1f}", candidate["median"].get<double>()) : "";
    };
    std::string gain = fmt::format("{:.1f} %", 100 * bucket["gain"].get<double>());
    if (bucket.contains("behind_best"))
      gain += fmt::format(", {:.1f} % behind the sweep's best", 100 * bucket["behind_best"].get<double>());
    table.add({json["spec"].get<std::string>(), bucket["bucket"].get<std::string>(),
               winner == 0 ? "default" : best["schedule"].get<std::string>(), microseconds(candidates[0]),
               microseconds(best), gain, fmt::format("{:.1f} %", 100 * bucket["margin"].get<double>()),
               fmt::format("{:.2f}", bucket["correlation"].get<double>()),
               fmt::format("{}", bucket["timed"].get<int>()), fmt::format("{}", refused)});
  }

  struct Result {
    size_t job;
    std::string gpu;
    Json json;
  };

  const Options& options_;
  const Clock::time_point begin_ = Clock::now();
  double budget_ = 0;
  std::vector<TuneJob> jobs_;
  TuneSettings settings_;
  fs::path directory_, own_cache_;
  WorkerPool pool_;
  std::vector<Queue> queues_;
  std::vector<Worker> workers_;
  std::vector<Result> results_;
  ProgressLine progress_;
  size_t done_ = 0, total_ = 0;
  int code_ = exit_ok;
};

}  // namespace

Command add_tune(CLI::App& root) {
  CLI::App* app =
      root.add_subcommand("tune", "Measure which schedules of specs are the fastest, and keep records");
  auto options = std::make_shared<Options>();
  app->add_option("SPEC", options->files, "Spec files")->required();
  app->add_flag("--dry-run", options->dry_run,
                "Print the space, what is refused and the model's ranks; needs no GPU");
  app->add_option("--target", options->target,
                  "With --dry-run: the target (default: this machine's GPU, else sm_80)");
  app->add_option("--budget", options->budget, "Time for everything, as in 120s or 10m (default: none)");
  app->add_option("--jobs", options->jobs, "Compiles at once (default: by cores and free memory)")
      ->check(CLI::PositiveNumber);
  app->add_flag("--resume", options->resume, "Leave out specs that have records of this GPU model");
  app->add_option("--device", options->devices, "Numbers of GPUs with commas between (default: all)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app->add_option("--bucket", options->buckets, "Buckets of shapes with commas between (default: all)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app->add_option("--candidates", options->candidates, "Schedules to time for a bucket (default 40)")
      ->check(CLI::Range(1, 10000));
  app->add_flag("--exhaustive", options->exhaustive,
                "Then time every legal schedule, and say how far from the best the search ended");
  app->add_option("--records", options->records,
                  "Directory of the records (default: TILEWRIGHT_RECORDS_DIR, else the user's)");
  app->add_option("--log", options->log, "Append every sample to this file, as JSON lines");
  app->add_option("--seed", options->seed, "Of the order of rounds (default 1)")
      ->check(CLI::NonNegativeNumber);
  app->add_flag("--json", options->json, "Print JSON");
  return {app, [options] { return TuneCommand(*options).run(); }};
}

}  // namespace tilewright::cli
