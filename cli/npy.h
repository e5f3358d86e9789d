// NumPy's .npy files: the little that attention tensors need.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::cli {

/// Values in C order.
struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

/// float16, float32, float64, int32, int64 or bool, little-endian, C order, at most 8 dimensions. `name` is for messages. Throws
/// Error(usage) that says what is wrong with the bytes.
NpyArray parse_npy(std::string_view bytes, std::string_view name);

/// Throws Error(environment) if the file cannot be read.
NpyArray read_npy(const std::filesystem::path& file);

/// float32. Throws Error(environment) if the file cannot be written.
void write_npy(const std::filesystem::path& file, std::span<const int64_t> shape,
               std::span<const double> values);

/// "[1, 128, 12, 32]"
std::string shape_text(std::span<const int64_t> shape);

}  // namespace tilewright::cli
