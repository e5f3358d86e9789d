// What the comparisons of both passes share: errors summed up, the worst element named.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include "codegen/spec.h"

namespace tilewright::reference {

/// The relative error of one rounding to nearest.
inline double rounding_error(DataType type) {
  return type == DataType::bf16 ? 0x1p-8 : type == DataType::fp16 ? 0x1p-11 : 0x1p-24;
}

struct Errors {
  double maximum = 0, squares = 0;
  int64_t count = 0;

  void add(double error) {
    maximum = std::max(maximum, error);
    squares += error * error;
    ++count;
  }
  double rms() const { return count ? std::sqrt(squares / static_cast<double>(count)) : 0; }
};

inline std::string number(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.9g", value);
  return buffer;
}

/// The element that is worst, by a rank first (a wrong NaN beats a wrong zero beats a large error) and its
/// error then.
struct Worst {
  int rank = 0;
  double error = -1;
  std::string message;

  bool beaten_by(int other_rank, double other_error) const {
    return other_rank > rank || (other_rank == rank && other_error > error);
  }
  void set(int new_rank, double new_error, const std::string& place, double got, double expected) {
    rank = new_rank;
    error = new_error;
    message = place + " is " + number(got) + ", expected " + number(expected);
  }
};

}  // namespace tilewright::reference
