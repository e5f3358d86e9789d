#include "cli/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace tilewright::cli {
namespace {

/// Divides by `step` until the number is below it.
std::string scaled(double value, double step, std::initializer_list<const char*> units) {
  auto unit = units.begin();
  while (value >= step && unit + 1 != units.end()) {
    value /= step;
    ++unit;
  }
  return unit == units.begin() ? fmt::format("{:.0f} {}", value, *unit)
                               : fmt::format("{:.2f} {}", value, *unit);
}

/// Characters, not bytes: UTF-8 continuation bytes take no place.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

void print_json(const Json& value) {
  fmt::print("{}\n", value.dump(2, ' ', false, Json::error_handler_t::replace));
}

void Table::print() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      bool last = i + 1 == row.size();
      if (!last) line.append(widths[i] - width_of(row[i]) + 2, ' ');
    }
    fmt::print("{}\n", line);
  }
}

void print_field(std::string_view label, std::string_view text) {
  fmt::print("{:<12}{}\n", label, text);
}

std::string bytes_text(double bytes) {
  return scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}

std::string flops_text(double operations) {
  return scaled(operations, 1000, {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"});
}

std::string milliseconds_text(double milliseconds) {
  if (milliseconds >= 1000) return fmt::format("{:.2f} s", milliseconds / 1000);
  return fmt::format("{:.{}f} ms", milliseconds, milliseconds >= 100 ? 0 : milliseconds >= 1 ? 1 : 3);
}

}  // namespace tilewright::cli
