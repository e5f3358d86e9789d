// tilewright validate: is a spec well-formed, and is there a kernel for it?
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/choices.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/output.h"
#include "codegen/schedule.h"
#include "runtime/build.h"
#include "tilewright/tilewright.hpp"

namespace tilewright::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string targets = "all";
  bool json = false;
};

struct Support {
  const Target* target;
  std::optional<BucketSchedules> schedules;
  std::string reason;  // why not
};

Support support_of(const AttentionSpec& spec, const Target& target) {
  try {
    static const TuningRecords records = usable_records({});
    return {&target, tuned_schedules(spec, target, nullptr, records), ""};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::spec) throw;
    return {&target, std::nullopt, error.what()};
  }
}

/// Where schedules depend on the launch, those of few and short sequences before that of long ones.
std::string schedules_text(const BucketSchedules& schedules) {
  std::string text;
  for (const Schedule& schedule : schedules.distinct())
    text += (text.empty() ? "" : "; or ") + describe(schedule);
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

void print_text(const std::string& file, const AttentionSpec& spec, const std::vector<Support>& supports) {
  fmt::print("{}: {}\n", file, title_of(spec, file));
  for (const std::string& line : lines_of(canonical_form(spec))) fmt::print("  {}\n", line);
  for (const Support& support : supports) {
    fmt::print("  {:<8} {}\n", support.target->name,
               support.schedules ? schedules_text(*support.schedules) : "refused: " + support.reason);
  }
}

Json as_json(const std::string& file, const AttentionSpec& spec, const std::vector<Support>& supports) {
  Json entry = {{"file", file}, {"name", spec.name}, {"canonical_form", canonical_form(spec)}};
  entry["targets"] = Json::array();
  for (const Support& support : supports) {
    Json item = {{"target", support.target->name}, {"supported", support.schedules.has_value()}};
    if (support.schedules) {
      item["schedule"] = schedules_text(*support.schedules);
    } else {
      item["reason"] = support.reason;
    }
    entry["targets"].push_back(std::move(item));
  }
  return entry;
}

/// All files are looked at, also after a bad one.
int validate_all(const Options& options) {
  std::vector<const Target*> targets = target_list(options.targets);
  int code = exit_ok;
  Json list = Json::array();
  for (const std::string& file : options.files) {
    try {
      AttentionSpec spec = load_spec(file);
      std::vector<Support> supports;
      bool served = false;
      for (const Target* target : targets) {
        supports.push_back(support_of(spec, *target));
        served = served || supports.back().schedules;
      }
      if (!served && code == exit_ok) code = exit_usage;
      if (options.json) {
        list.push_back(as_json(file, spec, supports));
      } else {
        print_text(file, spec, supports);
      }
    } catch (const Error& error) {
      int failed = report(error);
      if (code == exit_ok) code = failed;
      if (options.json) list.push_back({{"file", file}, {"error", error.what()}});
    }
  }
  if (options.json) print_json(list);
  return code;
}

}  // namespace

Command add_validate(CLI::App& root) {
  CLI::App* app = root.add_subcommand("validate", "Check specs and say which targets have a kernel for them");
  auto options = std::make_shared<Options>();
  app->add_option("SPEC", options->files, "Spec files")->required();
  app->add_option("--target", options->targets, "Targets to ask about, with commas between (default all)");
  app->add_flag("--json", options->json, "Print JSON");
  app->footer("Exit code 2 if a spec is malformed or none of the targets has a kernel for it.");
  return {app, [options] { return validate_all(*options); }};
}

}  // namespace tilewright::cli
