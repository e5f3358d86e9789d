// What the estimates of both passes share.
#pragma once

#include <cmath>
#include <initializer_list>

namespace tilewright::cost {

inline double round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Parts that overlap well, but not perfectly: more than the largest, less than the sum.
inline double overlapped(std::initializer_list<double> parts) {
  double sum = 0;
  for (double part : parts) sum += part * part * part * part;
  return std::sqrt(std::sqrt(sum));
}

/// A copy from L2 or device memory until it has landed.
constexpr double copy_latency = 1300;
/// Barriers, and the latency of the first products of a tile, in which nothing else of a block runs.
constexpr double tile_latency = 250;

}  // namespace tilewright::cost
