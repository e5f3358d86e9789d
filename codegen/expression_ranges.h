// Interval analysis: what an expression may be over a tile of query positions and keys. Sound: a tile is
// called full or empty only if it is so for every value in the ranges.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "codegen/expression.h"
#include "codegen/ranges.h"

namespace tilewright {

/// One of three, as the type says.
struct ValueRange {
  ValueType type = ValueType::integer;
  ranges::IntRange integer{0, 0};
  ranges::FloatRange number{0, 0};
  ranges::Truth truth{false, true};

  static ValueRange of(ranges::IntRange range) { return {ValueType::integer, range}; }
  static ValueRange of(ranges::FloatRange range) { return {ValueType::number, {0, 0}, range}; }
  static ValueRange of(ranges::Truth truth) { return {ValueType::boolean, {0, 0}, {0, 0}, truth}; }
  static ValueRange anything(ValueType type);
};

/// Ranges of what an expression is evaluated from. The defaults hold whatever a launch may give.
struct RangeEnvironment {
  RangeEnvironment();
  ranges::IntRange q, kv, head, kv_head, batch, seqlen_q, seqlen_kv;
  ranges::FloatRange score;
  /// Of a scalar; absent: anything of its type.
  std::map<std::string, ValueRange> scalars;
  /// The range of a look-up: of the tensor's elements over ranges of indices (saturated to 32 bits, not yet
  /// clamped to the tensor), or less; absent: anything of the element's type. A range with a NaN among its
  /// elements is [-inf, inf].
  std::function<ValueRange(const Expression& look_up, const std::vector<ranges::IntRange>& indices)> look_up;
};

/// Of a look-up in a tensor whose elements may be anything.
ValueRange any_element(const Expression& look_up);

ValueRange range_of(const Expression& expression, const RangeEnvironment& environment);

/// Sequences of kernels with expressions have at most this many queries and keys: sums and differences of
/// three positions and lengths fit 32 bits.
inline constexpr int64_t max_expression_seqlen = int64_t{1} << 29;

}  // namespace tilewright
