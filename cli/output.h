// Data on stdout: aligned tables, figures with units, JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::cli {

/// Keeps the order in which keys were added.
using Json = nlohmann::ordered_json;

/// One object or array, indented, and a line end. Text that is not UTF-8 is replaced.
void print_json(const Json& value);

/// Columns as wide as they need to be, two spaces apart.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// "label      text": one line of a report.
void print_field(std::string_view label, std::string_view text);

/// "512 B", "1.50 MiB"
std::string bytes_text(double bytes);
/// "12.9 GFLOP"
std::string flops_text(double operations);
/// "12.3 ms", "4.56 s"
std::string milliseconds_text(double milliseconds);

}  // namespace tilewright::cli
