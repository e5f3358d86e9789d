// The device's interval arithmetic, on the host: the very same text.
#pragma once

#include <cmath>

namespace tilewright::ranges {

using u64 = unsigned long long;
inline constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
inline float exp2_approximate(float x) {
  return std::exp2(x);
}
inline float log2_approximate(float x) {
  return std::log2(x);
}
inline float reciprocal_approximate(float x) {
  return 1 / x;
}

#define __device__
#define __forceinline__ inline
#include "templates/expression_values.cuh"
// the others build on it
#include "templates/expression_ranges.cuh"
// and on that
#include "templates/expression_key_ranges.cuh"
#undef __device__
#undef __forceinline__

}  // namespace tilewright::ranges
