// tilewright bundle: what is in a bundle file, whether it is whole, and whether it has the kernels of some
// specs.
#include "runtime/bundle.h"

#include <fmt/format.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cli/choices.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/output.h"
#include "codegen/error.h"
#include "runtime/precompile.h"

namespace tilewright::cli {
namespace {

struct Options {
  std::string file;
  std::vector<std::string> specs;
  std::string targets;
  bool json = false;
};

/// One line, without what would move a terminal's cursor.
std::string printable(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  std::string line;
  for (const char letter : text) {
    if (letter == '\n')
      line += "; ";
    else
      line += static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f ? '?' : letter;
  }
  return line;
}

int list_entries(const Options& options) {
  const Bundle bundle(options.file);
  const BundleView& view = bundle.view();
  Json list = Json::array();
  Table table({"target", "schedule", "registers", "size", "compiler", "spec"});
  for (size_t i = 0; i < view.size(); ++i) {
    const CacheEntry entry = view.entry(i);
    const CompileReport& report = entry.compiled.report;
    list.push_back({{"key", view.key(i)},
                    {"target", entry.target},
                    {"ptx", entry.compiled.is_ptx},
                    {"schedule", entry.schedule},
                    {"registers", report.registers},
                    {"spill_bytes", report.spill_bytes},
                    {"shared_memory", report.shared_memory},
                    {"bytes", view.entry_bytes(i)},
                    {"compiler", report.compiler},
                    {"spec", entry.spec}});
    table.add({printable(entry.target) + (entry.compiled.is_ptx ? " (PTX)" : ""), printable(entry.schedule),
               fmt::format("{}", report.registers), bytes_text(static_cast<double>(view.entry_bytes(i))),
               printable(report.compiler), printable(entry.spec)});
  }
  if (options.json) {
    print_json({{"version", printable(view.version())}, {"kernels", list}});
  } else {
    table.print();
    fmt::print("{} kernels, made by Tilewright {}\n", view.size(), printable(view.version()));
  }
  return exit_ok;
}

int verify_entries(const Options& options) {
  std::vector<std::string> problems;
  size_t good = 0;
  try {
    const Bundle bundle(options.file);
    for (size_t i = 0; i < bundle.view().size(); ++i) {
      try {
        bundle.view().entry(i);
        ++good;
      } catch (const Error& error) {
        problems.push_back(fmt::format("entry {}, {}: {}", i, bundle.view().key(i), error.what()));
      }
    }
  } catch (const Error& error) {
    problems.push_back(error.what());
  }
  if (options.json) {
    print_json({{"good", good}, {"problems", problems}});
  } else {
    for (const std::string& problem : problems) fmt::print("{}\n", problem);
    fmt::print("{} good, {} bad\n", good, problems.size());
  }
  return problems.empty() ? exit_ok : exit_wrong_result;
}

/// Those named, else all that the bundle has machine code for.
std::vector<const Target*> targets_of(const Options& options, const BundleView& view) {
  if (!options.targets.empty()) return target_list(options.targets);
  std::set<std::string> present;
  for (size_t i = 0; i < view.size(); ++i)
    if (const CacheEntry entry = view.entry(i); !entry.compiled.is_ptx) present.insert(entry.target);
  std::vector<const Target*> list;
  for (const Target& target : targets())
    if (present.count(std::string(target.name))) list.push_back(&target);
  return list;
}

int check_cover(const Options& options) {
  const Bundle bundle(options.file);
  const BundleView& view = bundle.view();
  size_t found = 0;
  std::vector<std::string> missing;
  for (const std::string& file : options.specs) {
    const AttentionSpec spec = load_spec(file);
    for (const Target* target : targets_of(options, view)) {
      for (const PrecompileJob& job : precompile_jobs(spec, title_of(spec, file), *target)) {
        if (view.find(source_key(job))) {
          ++found;
        } else {
          missing.push_back(fmt::format("{} for {} ({})", job.title, target->name, describe(job.schedule)));
        }
      }
    }
  }
  if (options.json) {
    print_json({{"found", found}, {"missing", missing}});
  } else {
    for (const std::string& kernel : missing) fmt::print("missing: {}\n", kernel);
    fmt::print("{} kernels found, {} missing\n", found, missing.size());
  }
  return missing.empty() ? exit_ok : exit_wrong_result;
}

}  // namespace

Command add_bundle(CLI::App& root) {
  CLI::App* app = root.add_subcommand("bundle", "Look into a bundle of precompiled kernels");
  app->require_subcommand(1);
  auto options = std::make_shared<Options>();
  CLI::App* list = app->add_subcommand("list", "List the kernels");
  CLI::App* verify = app->add_subcommand("verify", "Check every kernel; exit code 1 if one is bad");
  CLI::App* covers =
      app->add_subcommand("covers", "Say which kernels of some specs are missing; exit code 1 if any is");
  for (CLI::App* command : {list, verify, covers}) {
    command->add_option("BUNDLE", options->file, "Bundle file")->required();
    command->add_flag("--json", options->json, "Print JSON");
  }
  covers->add_option("SPEC", options->specs, "Spec files")->required();
  covers->add_option(
      "--target", options->targets,
      "Targets with commas between, or all (default: those that the bundle has machine code for)");
  return {app, [list, verify, options] {
            if (list->parsed()) return list_entries(*options);
            return verify->parsed() ? verify_entries(*options) : check_cover(*options);
          }};
}

}  // namespace tilewright::cli
