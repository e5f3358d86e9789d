// tilewright cache: where compiled kernels are kept, which, and whether they are whole.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/failure.h"
#include "cli/output.h"
#include "codegen/error.h"
#include "runtime/cache_directory.h"

namespace tilewright::cli {
namespace {

std::filesystem::path directory() {
  std::optional<std::filesystem::path> path = default_cache_directory();
  if (!path) {
    throw Error(ErrorKind::environment,
                "no cache directory: none of TILEWRIGHT_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
  }
  return *path;
}

/// A directory that does not exist yet is an empty cache.
std::vector<CacheDirectory::Listing> entries() {
  std::filesystem::path path = directory();
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  return CacheDirectory::open_read_only(path).list();
}

std::string one_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  for (size_t at = 0; (at = text.find('\n', at)) != text.npos;) text.replace(at, 1, "; ");
  return text;
}

Json as_json(const CacheDirectory::Listing& listing) {
  Json item = {{"file", listing.file.string()}, {"bytes", listing.bytes}, {"problem", listing.problem}};
  if (listing.entry) {
    const CacheEntry& entry = *listing.entry;
    item["spec"] = entry.spec;
    item["target"] = entry.target;
    item["schedule"] = entry.schedule;
    item["kernel"] = entry.kernel_name;
    item["ptx"] = entry.compiled.is_ptx;
    item["compiler"] = entry.compiled.report.compiler;
    item["milliseconds"] = entry.compiled.report.milliseconds;
    item["registers"] = entry.compiled.report.registers;
    item["spill_bytes"] = entry.compiled.report.spill_bytes;
  }
  return item;
}

int list_entries(bool json) {
  Json list = Json::array();
  Table table({"target", "schedule", "compiler", "size", "spec"});
  for (const CacheDirectory::Listing& listing : entries()) {
    list.push_back(as_json(listing));
    if (!listing.entry) {
      remark(fmt::format("{} is bad: {}", listing.file.string(), listing.problem));
      continue;
    }
    const CacheEntry& entry = *listing.entry;
    table.add({entry.target + (entry.compiled.is_ptx ? " (PTX)" : ""), entry.schedule,
               entry.compiled.report.compiler, bytes_text(static_cast<double>(listing.bytes)),
               one_line(entry.spec)});
  }
  if (json) {
    print_json(list);
  } else {
    table.print();
  }
  return exit_ok;
}

int verify_entries(bool json) {
  size_t good = 0, bad = 0;
  Json problems = Json::array();
  for (const CacheDirectory::Listing& listing : entries()) {
    ++(listing.entry ? good : bad);
    if (listing.entry) continue;
    problems.push_back({{"file", listing.file.string()}, {"problem", listing.problem}});
    if (!json) fmt::print("{}: {}\n", listing.file.string(), listing.problem);
  }
  if (json) {
    print_json({{"good", good}, {"bad", bad}, {"problems", problems}});
  } else {
    fmt::print("{} good, {} bad{}\n", good, bad,
               bad == 0 ? "" : "; bad entries are rebuilt when they are next needed");
  }
  return bad == 0 ? exit_ok : exit_wrong_result;
}

}  // namespace

Command add_cache(CLI::App& root) {
  CLI::App* app = root.add_subcommand("cache", "Look at the cache of compiled kernels");
  app->require_subcommand(1);
  auto json = std::make_shared<bool>(false);
  CLI::App* path = app->add_subcommand("path", "Print the directory");
  CLI::App* list = app->add_subcommand("list", "List the entries");
  CLI::App* verify = app->add_subcommand("verify", "Check every entry; exit code 1 if one is bad");
  list->add_flag("--json", *json, "Print JSON");
  verify->add_flag("--json", *json, "Print JSON");
  return {app, [path, list, json] {
            if (path->parsed()) {
              fmt::print("{}\n", directory().string());
              return exit_ok;
            }
            return list->parsed() ? list_entries(*json) : verify_entries(*json);
          }};
}

}  // namespace tilewright::cli
