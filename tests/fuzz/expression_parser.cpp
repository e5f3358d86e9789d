// Fuzz target: any bytes either give an ExpressionError inside of the text or a tree that its text gives
// back, and that evaluation, interval analysis, derivative and printers take, with values inside of their
// ranges.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "codegen/expression.h"
#include "codegen/expression_cuda.h"
#include "codegen/expression_derivative.h"
#include "codegen/expression_evaluate.h"
#include "codegen/expression_key_ranges.h"
#include "codegen/expression_ranges.h"

namespace {

using namespace tilewright;

void require(bool holds, const char* property, const std::string& text) {
  if (holds) return;
  std::cerr << "broken property: " << property << "\nexpression:\n" << text << "\n";
  std::abort();
}

Declarations declared() {
  Declarations declarations;
  declarations.scalars = {{"width", ScalarType::integer}, {"cap", ScalarType::number}};
  declarations.tensors = {{"document", parse_tensor_type("int32[kv]")},
                          {"slope", parse_tensor_type("float32[head]")},
                          {"keep", parse_tensor_type("bool[batch, kv]")}};
  return declarations;
}

/// Elements by index, anywhere.
int64_t element(int64_t index) {
  return index / 5 % 7;
}

Value look_up(const std::string& name, const std::vector<int64_t>& indices) {
  const int64_t value = element(indices.back());
  if (name == "document") return Value::of(value);
  return name == "slope" ? Value::of(static_cast<double>(value) / 4) : Value::of(value % 2 == 0);
}

const std::map<std::string, Value> scalars = {{"width", Value::of(int64_t{-3})}, {"cap", Value::of(1.5)}};

void check_ranges(const Expression& expression, const std::string& text) {
  const Environment environment{.q = 7,
                                .kv = 9,
                                .head = 1,
                                .kv_head = 1,
                                .batch = 0,
                                .seqlen_q = 10,
                                .seqlen_kv = 12,
                                .score = 0.5,
                                .scalars = &scalars,
                                .look_up = look_up};
  RangeEnvironment tile;  // tensors and scalars may be anything
  tile.q = {5, 8};
  tile.kv = {9, 12};
  tile.head = tile.kv_head = ranges::exactly_int(1);
  tile.seqlen_q = ranges::exactly_int(10);
  tile.seqlen_kv = ranges::exactly_int(12);
  tile.score = {0, 1};
  const Value value = evaluate(expression, environment);
  const ValueRange range = range_of(expression, tile);
  if (value.type == ValueType::boolean) {
    require(value.integer ? range.truth.may_hold : range.truth.may_fail, "a truth holds its value", text);
    const ranges::KeyRange keys = key_range(key_rule(expression), tile);
    require(!value.integer || (keys.begin <= 9 && 9 < keys.end), "a visible key is in the range", text);
    require(value.integer || 9 < keys.full_begin || 9 >= keys.full_end,
            "a hidden key is not in the full range", text);
    mask_function(expression), tile_state_function(expression), key_range_function(expression);
  } else {
    const bool held = std::isnan(value.number)
                          ? ranges::may_be_nan(range.number)
                          : range.number.low <= value.number && value.number <= range.number.high;
    require(held, "a range holds its value", text);
    score_function(expression);
    evaluate(derivative_by_score(expression), environment);
  }
}

void check(Expression (*parse)(std::string_view, const Declarations&), std::string_view text) {
  static const Declarations declarations = declared();
  try {
    const Expression expression = parse(text, declarations);
    const std::string canonical = to_text(expression);
    if (canonical.size() <= max_expression_text) {
      require(parse(canonical, declarations) == expression, "the text parses back to an equal tree",
              canonical);
      require(to_text(parse(canonical, declarations)) == canonical, "the text is stable", canonical);
    }
    check_ranges(expression, canonical);
  } catch (const ExpressionError& error) {
    require(error.offset() <= text.size(), "an error has a place", error.what());
    caret_lines(text, error.offset());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(parse_mask, text);
  check(parse_score, text);
  return 0;
}
