// Files of tuning records: reading, writing, merging.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "codegen/error.h"
#include "runtime/file_lock.h"
#include "runtime/tuning_records.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

std::string yaml_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + "\"";
}

std::string fraction_text(double value) {
  return fmt::format("{:.4f}", value);
}

std::string schedule_text(const MeasuredSchedule& measured) {
  return fmt::format("{{median: {:.2f}, deviation: {:.2f}, blocks: {}}}", measured.microseconds,
                     measured.deviation, canonical_form(request_for(measured.schedule)));
}

void write_record(std::string& text, const TuningRecord& record) {
  text += "\n  - spec: |\n";
  std::istringstream lines(record.spec);
  for (std::string line; std::getline(lines, line);) text += "      " + line + "\n";
  const LaunchShape& shape = record.shape;
  text += fmt::format("    bucket: {}\n", record.bucket);
  text += fmt::format("    shape: {{batch: {}, heads: {}, seqlen_q: {}, seqlen_kv: {}}}\n", shape.batch,
                      shape.heads, shape.seqlen_q, shape.seqlen_kv);
  text += "    best: " + schedule_text(record.best) + "\n";
  text += "    default: " + schedule_text(record.usual) + "\n";
  text +=
      fmt::format("    gain: {}\n    margin: {}\n", fraction_text(record.gain), fraction_text(record.margin));
  text +=
      fmt::format("    with: {{driver: {}, compiler: {}, date: {}, tool: {}}}\n", yaml_text(record.driver),
                  yaml_text(record.compiler), yaml_text(record.date), yaml_text(record.tool));
}

/// The schedule that complete blocks describe. Legality is no matter here.
Schedule read_blocks(const std::string& blocks) {
  const AttentionSpec spec = parse_spec("head_dim: 64\nblocks: " + blocks + "\n", "blocks");
  return schedule_of(spec.blocks);
}

std::string flow_text(const YAML::Node& node) {
  YAML::Emitter emitter;
  emitter << YAML::Flow << node;
  return emitter.c_str();
}

MeasuredSchedule read_measured(const YAML::Node& node) {
  return {read_blocks(flow_text(node["blocks"])), node["median"].as<double>(),
          node["deviation"].as<double>()};
}

TuningRecord read_record(const YAML::Node& node) {
  TuningRecord record;
  record.spec = node["spec"].as<std::string>();
  record.bucket = bucket_by_name(node["bucket"].as<std::string>()).name;
  const YAML::Node shape = node["shape"], with = node["with"];
  record.shape = {shape["batch"].as<int64_t>(), shape["heads"].as<int64_t>(), shape["seqlen_q"].as<int64_t>(),
                  shape["seqlen_kv"].as<int64_t>()};
  record.best = read_measured(node["best"]);
  record.usual = read_measured(node["default"]);
  record.gain = node["gain"].as<double>();
  record.margin = node["margin"].as<double>();
  record.driver = with["driver"].as<std::string>();
  record.compiler = with["compiler"].as<std::string>();
  record.date = with["date"].as<std::string>();
  record.tool = with["tool"].as<std::string>();
  return record;
}

std::string place_of(const fs::path& file, const YAML::Mark& mark) {
  return fmt::format("{}:{}:{}", file.string(), mark.line + 1, mark.column + 1);
}

std::string contents_of(const fs::path& file) {
  // Far more than the largest file: what is larger is something else.
  constexpr uintmax_t most = uintmax_t{16} << 20;
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  std::ifstream stream(file, std::ios::binary);
  if (error || !stream)
    throw Error(ErrorKind::environment, "cannot read the tuning records " + file.string() + ": " +
                                            (error ? error.message() : std::strerror(errno)));
  if (size > most)
    throw Error(ErrorKind::spec, file.string() + " has " + std::to_string(size) +
                                     " bytes; a file of tuning records has at most " + std::to_string(most));
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

bool before(const TuningRecord& a, const TuningRecord& b) {
  if (a.spec != b.spec) return a.spec < b.spec;
  return index_of(bucket_by_name(a.bucket)) < index_of(bucket_by_name(b.bucket));
}

void write_at_once(const fs::path& file, const std::string& text) {
  const fs::path temporary = file.string() + "." + std::to_string(getpid()) + ".tmp";
  const int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool written = descriptor >= 0;
  for (size_t done = 0; written && done < text.size();) {
    const ssize_t count = write(descriptor, text.data() + done, text.size() - done);
    written = count > 0 || (count < 0 && errno == EINTR);
    if (count > 0) done += static_cast<size_t>(count);
  }
  written = written && fsync(descriptor) == 0;
  int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (written && rename(temporary.c_str(), file.c_str()) == 0) return;
  if (written) error = errno;
  unlink(temporary.c_str());
  throw Error(ErrorKind::environment,
              "cannot write the tuning records " + file.string() + ": " + std::strerror(error));
}

}  // namespace

RecordFile parse_records(const std::string& text, const fs::path& file) {
  RecordFile result;
  result.path = file;
  try {
    const YAML::Node root = YAML::Load(text);
    const YAML::Node gpu = root["gpu"];
    result.gpu = {gpu["name"].as<std::string>(), gpu["target"].as<std::string>(),
                  gpu["multiprocessors"].as<int>(), gpu["l2_bytes"].as<int64_t>(),
                  gpu["memory_bytes"].as<int64_t>()};
    for (const YAML::Node& node : root["records"]) {
      try {
        result.records.push_back(read_record(node));
      } catch (const YAML::Exception& error) {
        result.skipped.push_back(place_of(file, error.mark.is_null() ? node.Mark() : error.mark) + ": " +
                                 error.msg);
      } catch (const Error& error) {
        result.skipped.push_back(place_of(file, node.Mark()) + ": " + error.what());
      }
    }
  } catch (const YAML::Exception& error) {
    throw Error(ErrorKind::spec, place_of(file, error.mark) + ": no file of tuning records: " + error.msg);
  }
  return result;
}

RecordFile read_records(const fs::path& file) {
  return parse_records(contents_of(file), file);
}

std::string record_text(const RecordFile& file) {
  std::vector<TuningRecord> records = file.records;
  std::stable_sort(records.begin(), records.end(), before);
  std::string text =
      "# Schedules measured by `tilewright tune` on this GPU model: one entry a spec and bucket of shapes. "
      "Medians "
      "and\n# deviations are microseconds; a schedule had to be faster than the default by `margin` to "
      "replace it.\n";
  text += fmt::format(
      "gpu: {{name: {}, target: {}, multiprocessors: {}, l2_bytes: {}, memory_bytes: {}}}\nrecords:",
      yaml_text(file.gpu.name), file.gpu.target, file.gpu.multiprocessors, file.gpu.l2_bytes,
      file.gpu.memory_bytes);
  if (records.empty()) return text + " []\n";
  for (const TuningRecord& record : records) write_record(text, record);
  return text;
}

void merge_records(const fs::path& file, const GpuModel& gpu, std::vector<TuningRecord> records) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  FileLock lock(file.string() + ".lock", std::chrono::seconds(30));
  RecordFile merged{.path = file, .gpu = gpu};
  if (fs::exists(file, error)) {
    merged = read_records(file);
    if (!merged.skipped.empty())
      throw Error(ErrorKind::environment,
                  "new records are not put into a file that holds some which would be lost: " +
                      merged.skipped.front() + "; mend it, or move it away");
    merged.gpu = gpu;
  }
  for (TuningRecord& record : records) {
    std::erase_if(merged.records, [&](const TuningRecord& old) {
      return old.spec == record.spec && old.bucket == record.bucket;
    });
    merged.records.push_back(std::move(record));
  }
  write_at_once(file, record_text(merged));
}

std::string record_file_name(const GpuModel& gpu) {
  std::string name;
  for (const char c : gpu.name) {
    const bool word = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (word) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!word && !name.empty() && name.back() != '-') name += '-';
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return (name.empty() ? "gpu" : name) + ".yaml";
}

}  // namespace tilewright
