// The interpreter: what an expression means, in fp64. Kernels compute floats in fp32 and ints and bools
// alike.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "codegen/expression.h"

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

/// The member that the type says is set; a bool is 0 or 1 in `integer`.
struct Value {
  ValueType type = ValueType::integer;
  int64_t integer = 0;
  double number = 0;

  static Value of(bool value) { return {ValueType::boolean, value, 0}; }
  static Value of(int64_t value) { return {ValueType::integer, value, 0}; }
  static Value of(double value) { return {ValueType::number, 0, value}; }
};

/// Where an expression is evaluated.
struct Environment {
  int64_t q = 0, kv = 0, head = 0, kv_head = 0, batch = 0, seqlen_q = 0, seqlen_kv = 0;
  double score = 0;
  const std::map<std::string, Value>* scalars = nullptr;
  /// The tensor's element; `indices` are positions, not yet clamped to the tensor (docs/expressions.md).
  std::function<Value(const std::string& name, const std::vector<int64_t>& indices)> look_up;
};

/// Throws Error (internal) for a name that the environment lacks.
Value evaluate(const Expression& expression, const Environment& environment);

/// Ints of the language: 64 bits that wrap, division rounded down, 0 for a divisor of 0.
int64_t floor_divide(int64_t a, int64_t b);
int64_t floor_modulo(int64_t a, int64_t b);

/// The element's offset along a dimension of `extent` elements: indices beyond the ends mean the ends, so
/// that a dimension of 1 is broadcast. Along a `q` dimension the first element belongs to the first query.
int64_t clamped_index(const Dimension& dimension, int64_t extent, int64_t index, int64_t seqlen_q,
                      int64_t seqlen_kv);

}  // namespace tilewright
#pragma GCC visibility pop
