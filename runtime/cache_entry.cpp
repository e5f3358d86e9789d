#include "runtime/cache_entry.h"

#include <cstring>

#include "codegen/error.h"
#include "runtime/hash.h"

namespace tilewright {
namespace {

constexpr std::string_view magic = "TWKERNEL";
constexpr size_t checksum_size = 32;

class Writer {
 public:
  explicit Writer(std::string& bytes) : bytes_(bytes) {}

  template <typename T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(uint64_t{value.size()});
    bytes_ += value;
  }

 private:
  std::string& bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<uint64_t>())); }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view take(uint64_t size) {
    if (size > bytes_.size()) throw Error(ErrorKind::environment, "a field is longer than the file");
    std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::string_view bytes_;
};

}  // namespace

std::string encode_entry(const CacheEntry& entry) {
  const CompileReport& report = entry.compiled.report;
  std::string bytes(magic);
  Writer writer(bytes);
  writer.number(cache_format);
  writer.text(entry.key.source);
  writer.text(entry.key.compiler);
  writer.text(entry.spec);
  writer.text(entry.schedule);
  writer.text(entry.target);
  writer.text(entry.kernel_name);
  writer.text(report.compiler);
  writer.text(report.command);
  writer.number(report.milliseconds);
  writer.number(int32_t{report.registers});
  writer.number(int32_t{report.spill_bytes});
  writer.number(int32_t{report.shared_memory});
  writer.number(static_cast<uint32_t>(report.notes.size()));
  for (const auto& note : report.notes) writer.text(note);
  writer.number(uint8_t{entry.compiled.is_ptx});
  writer.text(entry.compiled.image);
  bytes += hash_hex(bytes);
  return bytes;
}

CacheEntry decode_entry(std::string_view bytes) {
  if (bytes.size() < magic.size() + checksum_size || !bytes.starts_with(magic))
    throw Error(ErrorKind::environment, "not a kernel file, or cut short");
  std::string_view body = bytes.substr(0, bytes.size() - checksum_size);
  if (hash_hex(body) != bytes.substr(body.size()))
    throw Error(ErrorKind::environment, "the checksum does not hold");

  Reader reader(body.substr(magic.size()));
  if (auto version = reader.number<uint32_t>(); version != cache_format)
    throw Error(ErrorKind::environment,
                "format " + std::to_string(version) + ", expected " + std::to_string(cache_format));
  CacheEntry entry;
  CompileReport& report = entry.compiled.report;
  entry.key.source = reader.text();
  entry.key.compiler = reader.text();
  entry.spec = reader.text();
  entry.schedule = reader.text();
  entry.target = reader.text();
  entry.kernel_name = reader.text();
  report.compiler = reader.text();
  report.command = reader.text();
  report.milliseconds = reader.number<double>();
  report.registers = reader.number<int32_t>();
  report.spill_bytes = reader.number<int32_t>();
  report.shared_memory = reader.number<int32_t>();
  for (auto left = reader.number<uint32_t>(); left > 0; --left) report.notes.push_back(reader.text());
  entry.compiled.is_ptx = reader.number<uint8_t>() != 0;
  entry.compiled.image = reader.text();
  if (!reader.at_end()) throw Error(ErrorKind::environment, "bytes after the last field");
  return entry;
}

}  // namespace tilewright
