// tilewright precompile: specs for targets into one bundle file, for machines without a compiler. Needs no
// GPU.
#include "runtime/precompile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cli/choices.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/output.h"
#include "codegen/error.h"
#include "runtime/bundle_format.h"
#include "runtime/compile_limits.h"
#include "runtime/replace_file.h"

namespace tilewright::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string targets;
  std::string output = "kernels.twb";
  size_t jobs = 0;  // 0: one a core
  bool with_ptx = false;
  bool partial = false;
  bool json = false;
};

std::string place_of(const PrecompileJob& job) {
  return fmt::format("{} for {}{}", job.title, job.target->name, job.as_ptx ? " (PTX)" : "");
}

/// Progress on a terminal's last line; nothing elsewhere.
class Progress {
 public:
  explicit Progress(size_t all) : all_(all), shown_(isatty(STDERR_FILENO)) {}
  void step(const std::string& what) {
    ++done_;
    if (shown_) fmt::print(stderr, "\r\033[K[{}/{}] {}", done_, all_, what);
    if (shown_) std::fflush(stderr);
  }
  void clear() const {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  size_t all_, done_ = 0;
  bool shown_;
};

struct Plan {
  std::vector<PrecompileJob> jobs;
  size_t specs = 0;
  int failed = exit_ok;  // the first failure's exit code

  void fail(int code) {
    if (failed == exit_ok) failed = code;
  }
};

/// Jobs of the specs that can be read and that a kernel serves; each kernel once, whatever files ask for it.
Plan plan_of(const Options& options, const std::vector<const Target*>& targets) {
  Plan plan;
  std::set<std::string> planned;
  const auto add = [&](const auto& jobs_of, const std::string& place) {
    try {
      for (PrecompileJob& job : jobs_of())
        if (planned.insert(source_key(job)).second) plan.jobs.push_back(std::move(job));
    } catch (const Error& error) {
      remark(place + ":");
      plan.fail(report(error));
    }
  };
  for (const std::string& file : options.files) {
    try {
      const AttentionSpec spec = load_spec(file);
      const std::string title = title_of(spec, file);
      ++plan.specs;
      for (const Target* target : targets)
        add([&] { return precompile_jobs(spec, title, *target); },
            fmt::format("{} for {}", title, target->name));
      if (options.with_ptx)
        add([&] { return precompile_ptx_jobs(spec, title); }, fmt::format("{} as PTX", title));
    } catch (const Error& error) {
      plan.fail(report(error));
    }
  }
  return plan;
}

int precompile_all(const Options& options) {
  const std::vector<const Target*> targets =
      options.targets.empty() ? std::vector{&chosen_target("")} : target_list(options.targets);
  const auto start = std::chrono::steady_clock::now();
  Plan plan = plan_of(options, targets);
  const size_t processes =
      options.jobs ? options.jobs
                   : static_cast<size_t>(compiles_at_once(
                         static_cast<int>(std::thread::hardware_concurrency()), available_memory()));
  Progress progress(plan.jobs.size());
  size_t compiled = 0;
  const auto results =
      precompile(plan.jobs, {}, processes, [&](size_t index, const PrecompileResult& result) {
        progress.step(place_of(plan.jobs[index]));
        if (result.failure.empty()) {
          compiled += result.from == CacheResult::compiled;
          return;
        }
        progress.clear();
        remark(place_of(plan.jobs[index]) + ":");
        plan.fail(report(Error(result.kind, result.failure)));
      });
  progress.clear();
  std::vector<CacheEntry> entries;
  for (const PrecompileResult& result : results)
    if (result.failure.empty()) entries.push_back(result.entry);
  if (plan.failed != exit_ok && !options.partial) {
    remark(fmt::format("{} is not written, as kernels are missing (--partial writes the others)",
                       options.output));
    return plan.failed;
  }
  const size_t kernels = entries.size();
  const std::string bytes = encode_bundle(std::move(entries));
  if (const std::string failure = replace_file(options.output, bytes, 0644); !failure.empty())
    throw Error(ErrorKind::environment, options.output + ": " + failure);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.json) {
    print_json({{"file", options.output},
                {"bytes", bytes.size()},
                {"kernels", kernels},
                {"specs", plan.specs},
                {"compiled", compiled},
                {"from_cache", kernels - compiled},
                {"processes", processes},
                {"seconds", seconds}});
  } else {
    fmt::print("{}: {} kernels of {} specs, {}; {} compiled, {} from the cache, {} by {} processes\n",
               options.output, kernels, plan.specs, bytes_text(static_cast<double>(bytes.size())), compiled,
               kernels - compiled, milliseconds_text(1000 * seconds), processes);
  }
  return exit_ok;
}

}  // namespace

Command add_precompile(CLI::App& root) {
  CLI::App* app = root.add_subcommand("precompile", "Compile specs into one bundle file; needs no GPU");
  auto options = std::make_shared<Options>();
  app->add_option("SPEC", options->files, "Spec files")->required();
  app->add_option("--target", options->targets,
                  "Targets with commas between, or all (default: this machine's GPU, else sm_80)");
  app->add_option("-o,--output", options->output, "File to write (default kernels.twb)");
  app->add_flag("--with-ptx", options->with_ptx, "PTX too, for GPUs newer than the known targets");
  app->add_option("--jobs", options->jobs, "Processes that compile side by side (default: one per core)")
      ->check(CLI::Range(1, 1024));
  app->add_flag("--partial", options->partial, "Write the bundle even if some kernels cannot be made");
  app->add_flag("--json", options->json, "Print JSON");
  return {app, [options] { return precompile_all(*options); }};
}

}  // namespace tilewright::cli
