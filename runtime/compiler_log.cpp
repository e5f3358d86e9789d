#include "runtime/compiler_log.h"

#include <algorithm>
#include <charconv>

namespace tilewright {
namespace {

/// The number that stands right before `words` in a line; 0 if there is none.
int number_before(std::string_view line, std::string_view words) {
  size_t end = line.find(words);
  if (end == std::string_view::npos) return 0;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int number = 0;
  std::from_chars(line.data() + begin, line.data() + end, number);
  return number;
}

/// "(C7510)" and the like.
bool has_numbered_advice(std::string_view line) {
  auto digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t at = line.find("(C"); at != std::string_view::npos; at = line.find("(C", at + 1))
    if (at + 2 < line.size() && digit(line[at + 2])) return true;
  return false;
}

std::string_view trimmed(std::string_view line) {
  size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

void read_compiler_log(std::string_view log, CompileReport& report) {
  while (!log.empty()) {
    size_t end = std::min(log.find('\n'), log.size());
    std::string_view line = trimmed(log.substr(0, end));
    log.remove_prefix(std::min(end + 1, log.size()));
    report.registers = std::max(report.registers, number_before(line, " registers"));
    report.spill_bytes +=
        number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
    if (has_numbered_advice(line) || line.find("warning") != std::string_view::npos)
      report.notes.emplace_back(line);
  }
}

}  // namespace tilewright
