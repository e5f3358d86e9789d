// tilewright compile: specs for targets into the cache, and what the compiler said about them. Needs no GPU.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/choices.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/output.h"
#include "runtime/build.h"
#include "tilewright/tilewright.hpp"

namespace tilewright::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string targets;
  bool strict = false;
  bool no_cache = false;
  bool json = false;
};

/// Spills, and notes such as C7510 (wgmma serialised): a kernel that works, but not as it was meant to.
std::vector<std::string> defects_of(const CompileReport& report) {
  std::vector<std::string> defects;
  if (report.spill_bytes > 0) defects.push_back(fmt::format("spills {} bytes", report.spill_bytes));
  for (const std::string& note : report.notes) {
    if (note.find("C75") != std::string::npos) defects.push_back(note);
  }
  return defects;
}

struct Results {
  Table table{{"spec", "target", "schedule", "compile", "registers", "spills", "shared", "from"}};
  Json list = Json::array();
  int code = exit_ok;

  void fail(int failed) {
    if (code == exit_ok) code = failed;
  }
};

void add_result(Results& results, const std::string& title, const Target& target,
                const CompiledKernel& kernel, const std::vector<std::string>& defects) {
  const CompileReport& report = kernel.report;
  results.table.add({title, std::string(target.name), describe(kernel.schedule),
                     milliseconds_text(report.milliseconds), fmt::format("{}", report.registers),
                     fmt::format("{} B", report.spill_bytes),
                     fmt::format("{} B", kernel.source.shared_memory), std::string(name_of(kernel.from))});
  results.list.push_back({{"spec", title},
                          {"target", target.name},
                          {"schedule", describe(kernel.schedule)},
                          {"compiler", report.compiler},
                          {"milliseconds", report.milliseconds},
                          {"registers", report.registers},
                          {"spill_bytes", report.spill_bytes},
                          {"shared_memory", kernel.source.shared_memory},
                          {"from", name_of(kernel.from)},
                          {"notes", report.notes},
                          {"defects", defects}});
}

void compile_one(const Options& options, const std::string& title, const AttentionSpec& spec,
                 const Schedule& schedule, const Target& target, Results& results) {
  RuntimeOptions runtime;
  runtime.disk_cache = !options.no_cache;
  CompiledKernel kernel = compile(spec, schedule, target, runtime);
  std::vector<std::string> defects = defects_of(kernel.report);
  for (const std::string& note : kernel.report.notes)
    remark(fmt::format("{} for {}: {}", title, target.name, note));
  for (const std::string& defect : defects) {
    if (!options.strict) continue;
    fmt::print(stderr, "tilewright: error: {} for {}: {}\n", title, target.name, defect);
    results.fail(exit_compile);
  }
  add_result(results, title, target, kernel, defects);
}

/// A failure of one leaves the others alone; the first failure gives the exit code.
int compile_all(const Options& options) {
  std::vector<const Target*> targets =
      options.targets.empty() ? std::vector{&chosen_target("")} : target_list(options.targets);
  const TuningRecords records = usable_records({});
  Results results;
  for (const std::string& file : options.files) {
    try {
      AttentionSpec spec = load_spec(file);
      std::string title = title_of(spec, file);
      for (const Target* target : targets) {
        try {
          const std::optional<GpuModel> gpu = gpu_of_target(*target);
          const BucketSchedules schedules = tuned_schedules(spec, *target, gpu ? &*gpu : nullptr, records);
          for (const Schedule& schedule : schedules.distinct())
            compile_one(options, title, spec, schedule, *target, results);
        } catch (const Error& error) {
          remark(fmt::format("{} for {}:", title, target->name));
          results.fail(report(error));
        }
      }
    } catch (const Error& error) {
      results.fail(report(error));
    }
  }
  if (options.json) {
    print_json(results.list);
  } else {
    results.table.print();
  }
  return results.code;
}

}  // namespace

Command add_compile(CLI::App& root) {
  CLI::App* app = root.add_subcommand("compile", "Compile specs into the cache; needs no GPU");
  auto options = std::make_shared<Options>();
  app->add_option("SPEC", options->files, "Spec files")->required();
  app->add_option("--target", options->targets,
                  "Targets with commas between, or all (default: this machine's GPU, else sm_80)");
  app->add_flag("--strict", options->strict, "Spills and C75xx notes are failures (exit code 4)");
  app->add_flag("--no-cache", options->no_cache, "Leave the disk cache alone");
  app->add_flag("--json", options->json, "Print JSON");
  return {app, [options] { return compile_all(*options); }};
}

}  // namespace tilewright::cli
