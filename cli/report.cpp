// tilewright report: what tuning found, as one page that needs nothing else.
#include "cli/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>

#include "cli/command.h"
#include "cli/failure.h"
#include "codegen/error.h"
#include "codegen/io_model.h"
#include "tilewright/tilewright.hpp"

namespace tilewright::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> records;
  std::vector<std::string> logs;
  std::string output = "report.html";
};

constexpr const char* style = R"(
:root { --ink: #1c2430; --dim: #667; --line: #d8dce3; --page: #fff; --best: #0b6e4f; --usual: #9aa3b2; --on: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --dim: #9aa3b2; --line: #333b47; --page: #14181e; --best: #3fbf92; --usual: #6b7686; --on: #0c0f13 } }
body { margin: 2rem auto; max-width: 900px; padding: 0 1rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2.5rem } h3 { font-size: 1rem; margin-top: 1.6rem }
p, .dim { color: var(--dim) }
table { border-collapse: collapse; width: 100%; font-size: 13px }
th { text-align: left; color: var(--dim); font-weight: 500 }
td, th { padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line); vertical-align: top }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.wide { overflow-x: auto }
svg { display: block; margin: .6rem 0; max-width: 100%; height: auto }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink) } svg text.strong { font-weight: 600 }
svg text.on-heat { fill: var(--on) }
.grid { stroke: var(--line) } .roof { fill: none; stroke: var(--ink); stroke-width: 2 }
.best, .heat { fill: var(--best) } .usual { fill: var(--usual) } .sample { fill: var(--usual); fill-opacity: .55 }
.median { stroke: var(--best); stroke-width: 2 } .margin { stroke: var(--ink); stroke-width: 1.5 }
)";

std::string title_of_record(const TuningRecord& record) {
  std::string text = record.spec;
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at))
    text.replace(at, 1, at + 1 == text.size() ? "" : ", ");
  return text;
}

/// Names of specs by their keys, where a log knows them.
using Names = std::map<std::string, std::string>;

std::string name_of(const TuningRecord& record, const Names& names) {
  const auto found = names.find(record.spec);
  return found == names.end() ? title_of_record(record) : found->second;
}

void add_points(const TuningRecord& record, const std::string& label, std::vector<RooflinePoint>& points) {
  const AttentionSpec spec = parse_spec(record.spec, "record");
  for (const MeasuredSchedule* measured : {&record.usual, &record.best}) {
    if (!(measured->microseconds > 0)) continue;
    const IoModel io = model_io(spec, measured->schedule, record.shape);
    if (!(io.traffic.tiled_least() > 0) || !(io.work.needed > 0)) continue;
    points.push_back({label, io.work.needed / io.traffic.tiled_least(),
                      io.work.needed / measured->microseconds * 1e-6, measured == &record.best});
  }
}

std::string cell(const std::string& text, bool number = false) {
  return fmt::format("<td{}>{}</td>", number ? " class=\"number\"" : "", escaped(text));
}

std::string table_of(const RecordFile& file, const Names& names) {
  std::string text =
      "<div class=\"wide\"><table><thead><tr><th>spec</th><th>bucket</th><th>best schedule</th>"
      "<th class=\"number\">default, us</th><th class=\"number\">best, us</th><th class=\"number\">gain</th>"
      "<th class=\"number\">margin</th></tr></thead><tbody>\n";
  for (const TuningRecord& record : file.records) {
    const bool same = record.best.schedule == record.usual.schedule;
    text += "<tr>" + cell(name_of(record, names)) + cell(record.bucket) +
            cell(describe(record.best.schedule) + (same ? " (the default)" : "")) +
            cell(fmt::format("{:.1f} ± {:.1f}", record.usual.microseconds, record.usual.deviation), true) +
            cell(fmt::format("{:.1f} ± {:.1f}", record.best.microseconds, record.best.deviation), true) +
            cell(fmt::format("{:.1f} %", 100 * record.gain), true) +
            cell(fmt::format("{:.1f} %", 100 * record.margin), true) + "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

std::string gpu_section(const RecordFile& file, const Names& names) {
  std::vector<RooflinePoint> points;
  std::vector<GainBar> bars;
  double product = 0;
  for (const TuningRecord& record : file.records) {
    const std::string label = name_of(record, names) + ", " + record.bucket;
    bars.push_back({label, record.gain, record.margin});
    product += std::log1p(record.gain);
    try {
      add_points(record, label, points);
    } catch (const Error& error) {
      remark(file.path.string() + ": no point in the roofline for " + label + ": " + error.what());
    }
  }
  GpuFigures gpu = typical_gpu(target_by_name(file.gpu.target));
  gpu.multiprocessors = file.gpu.multiprocessors;
  std::string text = fmt::format(
      "<h2>{}</h2>\n<p>{}, {} multiprocessors, {} of L2, {} of memory. {} records; the geometric mean of the "
      "gains is "
      "{:.1f} %.</p>\n",
      escaped(file.gpu.name), file.gpu.target, file.gpu.multiprocessors,
      bytes_text(static_cast<double>(file.gpu.l2_bytes)),
      bytes_text(static_cast<double>(file.gpu.memory_bytes)), file.records.size(),
      file.records.empty() ? 0.0 : 100 * std::expm1(product / static_cast<double>(file.records.size())));
  if (file.records.empty()) return text;
  text +=
      "<h3>Roofline</h3>\n<p>Green: the best schedule; grey: the default. Where a mask leaves out scores, so "
      "does "
      "the count of operations.</p>\n" +
      roofline_chart(gpu, points);
  text += "<h3>Best against default</h3>\n<p>The mark is the margin that a schedule had to pass.</p>\n" +
          gain_chart(bars);
  return text + table_of(file, names);
}

std::string log_section(const Json& line) {
  std::string text =
      fmt::format("<h3>{}, {}, {}</h3>\n", escaped(line["spec"].get<std::string>()),
                  escaped(line["bucket"].get<std::string>()), escaped(line["gpu"].get<std::string>()));
  text += fmt::format(
      "<p>{} schedules timed; rank correlation of the model with the clock {:.2f}; {} samples "
      "discarded because the GPU was throttled.</p>\n",
      line["timed"].get<int>(), line["correlation"].get<double>(), line["throttled"].get<int>());
  return text + heat_maps(line) + spread_chart(line);
}

/// The last line of each spec, bucket and GPU, in the order of the first.
std::vector<Json> read_logs(const std::vector<std::string>& files) {
  std::vector<Json> lines;
  std::map<std::string, size_t> places;
  for (const std::string& file : files) {
    std::ifstream stream(file);
    if (!stream) throw Error(ErrorKind::environment, "cannot read the log " + file);
    int number = 0;
    for (std::string text; std::getline(stream, text);) {
      ++number;
      Json line = Json::parse(text, nullptr, false);
      const char* const keys[] = {"spec",       "key",   "gpu",         "bucket",
                                  "candidates", "timed", "correlation", "throttled"};
      const bool whole = line.is_object() && std::all_of(std::begin(keys), std::end(keys),
                                                         [&](const char* key) { return line.contains(key); });
      if (!whole) {
        remark(fmt::format("{}:{} is no line of a tuning log, and is left out", file, number));
        continue;
      }
      const std::string id = line["key"].dump() + line["gpu"].dump() + line["bucket"].dump();
      const auto [place, is_new] = places.try_emplace(id, lines.size());
      if (is_new)
        lines.push_back(std::move(line));
      else
        lines[place->second] = std::move(line);
    }
  }
  return lines;
}

std::vector<RecordFile> read_all_records(const Options& options) {
  std::vector<RecordFile> files;
  for (const std::string& path : options.records)
    if (!fs::is_directory(path)) files.push_back(read_records(path));
  std::vector<fs::path> directories;
  for (const std::string& path : options.records)
    if (fs::is_directory(path)) directories.push_back(path);
  if (options.records.empty()) directories = record_directories(std::nullopt);
  const TuningRecords found(directories);
  for (const std::string& problem : found.problems()) remark("left out: " + problem);
  files.insert(files.end(), found.files().begin(), found.files().end());
  if (files.empty() && options.logs.empty())
    throw Error(ErrorKind::environment, "no tuning records to report on; `tilewright tune` makes some");
  return files;
}

int write_report(const Options& options) {
  const std::vector<Json> lines = read_logs(options.logs);
  const std::vector<RecordFile> files = read_all_records(options);
  Names names;
  for (const Json& line : lines) names[line["key"].get<std::string>()] = line["spec"].get<std::string>();
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>Tilewright tuning "
      "report</title>\n<style>" +
      std::string(style) + "</style></head>\n<body>\n<h1>Tuning report</h1>\n";
  for (const RecordFile& file : files) html += gpu_section(file, names);
  if (!lines.empty())
    html +=
        "<h2>Searches</h2>\n<p>Heat maps show, for each pair of tile sizes, how much slower its fastest "
        "schedule "
        "is than the fastest of all. Dots are samples, the line is their median.</p>\n";
  for (const Json& line : lines) html += log_section(line);
  html += fmt::format("<p>Made by tilewright {}.</p>\n</body></html>\n", version());
  std::ofstream stream(options.output, std::ios::binary | std::ios::trunc);
  stream << html;
  stream.close();
  if (!stream) throw Error(ErrorKind::environment, options.output + " cannot be written");
  remark(fmt::format("{}: {} GPU model{}, {} searches", options.output, files.size(),
                     files.size() == 1 ? "" : "s", lines.size()));
  return exit_ok;
}

}  // namespace

Command add_report(CLI::App& root) {
  CLI::App* app = root.add_subcommand("report", "Write a page about tuning records and logs");
  auto options = std::make_shared<Options>();
  app->add_option("RECORDS", options->records,
                  "Files or directories of records (default: all that are used)");
  app->add_option("--log", options->logs, "Logs of `tune --log`, for heat maps and samples")
      ->delimiter(',')
      ->allow_extra_args(false);
  app->add_option("-o,--output", options->output, "The page (default report.html)");
  return {app, [options] { return write_report(*options); }};
}

}  // namespace tilewright::cli
