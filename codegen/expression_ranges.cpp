#include "codegen/expression_ranges.h"

#include <utility>

namespace tilewright {
namespace {

using namespace ranges;

// Rows and keys of a last tile go on beyond the ends of the sequences.
constexpr int64_t beyond = 4096;

IntRange lengths() {
  return {0, max_expression_seqlen};
}
IntRange int32() {
  return {INT32_MIN, INT32_MAX};
}

ValueRange variable_range(ExpressionVariable variable, const RangeEnvironment& environment) {
  switch (variable) {
    case ExpressionVariable::q:
      return ValueRange::of(environment.q);
    case ExpressionVariable::kv:
      return ValueRange::of(environment.kv);
    case ExpressionVariable::head:
      return ValueRange::of(environment.head);
    case ExpressionVariable::kv_head:
      return ValueRange::of(environment.kv_head);
    case ExpressionVariable::batch:
      return ValueRange::of(environment.batch);
    case ExpressionVariable::seqlen_q:
      return ValueRange::of(environment.seqlen_q);
    case ExpressionVariable::seqlen_kv:
      return ValueRange::of(environment.seqlen_kv);
    case ExpressionVariable::score:
      break;
  }
  return ValueRange::of(environment.score);
}

ValueRange scalar_range(const Expression& expression, const RangeEnvironment& environment) {
  const auto found = environment.scalars.find(expression.name());
  if (found != environment.scalars.end()) return found->second;
  return expression.type() == ValueType::integer ? ValueRange::of(int32())
                                                 : ValueRange::anything(expression.type());
}

ValueRange look_up_range(const Expression& expression, const RangeEnvironment& environment) {
  if (environment.look_up) {
    std::vector<IntRange> indices;
    for (const Expression& index : expression.operands())
      indices.push_back(saturated_range(range_of(index, environment).integer));
    return environment.look_up(expression, indices);
  }
  return any_element(expression);
}

IntRange on_integers(Operation operation, IntRange a, IntRange b) {
  switch (operation) {
    case Operation::add:
      return add_int_ranges(a, b);
    case Operation::subtract:
      return subtract_int_ranges(a, b);
    case Operation::multiply:
      return multiply_int_ranges(a, b);
    case Operation::divide:
      return divide_int_ranges(a, b);
    case Operation::modulo:
      return modulo_int_ranges(a, b);
    case Operation::min:
      return min_int_ranges(a, b);
    case Operation::max:
      return max_int_ranges(a, b);
    case Operation::negate:
      return negate_int_range(a);
    default:
      return abs_int_range(a);
  }
}

FloatRange on_floats(Operation operation, FloatRange a, FloatRange b) {
  switch (operation) {
    case Operation::add:
      return add_float_ranges(a, b);
    case Operation::subtract:
      return subtract_float_ranges(a, b);
    case Operation::multiply:
      return multiply_float_ranges(a, b);
    case Operation::divide:
      return divide_float_ranges(a, b);
    case Operation::pow:
      return pow_ranges(a, b);
    case Operation::min:
      return min_float_ranges(a, b);
    case Operation::max:
      return max_float_ranges(a, b);
    case Operation::negate:
      return negate_float_range(a);
    case Operation::exp:
      return exp_range(a);
    case Operation::log:
      return log_range(a);
    case Operation::tanh:
      return tanh_range(a);
    default:
      return abs_float_range(a);
  }
}

Truth compare(Operation operation, const ValueRange& a, const ValueRange& b) {
  const bool floats = a.type == ValueType::number;
  switch (operation) {
    case Operation::less:
      return floats ? less_floats(a.number, b.number) : less_ints(a.integer, b.integer);
    case Operation::greater:
      return floats ? less_floats(b.number, a.number) : less_ints(b.integer, a.integer);
    case Operation::less_equal:
      return floats ? less_equal_floats(a.number, b.number) : not_truth(less_ints(b.integer, a.integer));
    case Operation::greater_equal:
      return floats ? less_equal_floats(b.number, a.number) : not_truth(less_ints(a.integer, b.integer));
    default:
      break;
  }
  const Truth equal = a.type == ValueType::boolean ? equal_truths(a.truth, b.truth)
                      : floats                     ? equal_floats(a.number, b.number)
                                                   : equal_ints(a.integer, b.integer);
  return operation == Operation::equal ? equal : not_truth(equal);
}

ValueRange choose(Truth condition, const ValueRange& a, const ValueRange& b) {
  if (a.type == ValueType::boolean) return ValueRange::of(choose_truth(condition, a.truth, b.truth));
  if (a.type == ValueType::integer) return ValueRange::of(choose_int_range(condition, a.integer, b.integer));
  return ValueRange::of(choose_float_range(condition, a.number, b.number));
}

}  // namespace

ValueRange ValueRange::anything(ValueType type) {
  if (type == ValueType::boolean) return of(Truth{true, true});
  return type == ValueType::integer ? of(any_int()) : of(any_float());
}

ValueRange any_element(const Expression& look_up) {
  return look_up.type() == ValueType::integer ? ValueRange::of(int32())
                                              : ValueRange::anything(look_up.type());
}

RangeEnvironment::RangeEnvironment()
    : q{-max_expression_seqlen, max_expression_seqlen + beyond},
      kv{0, max_expression_seqlen + beyond},
      head{0, INT32_MAX},
      kv_head{0, INT32_MAX},
      batch{0, INT32_MAX},
      seqlen_q(lengths()),
      seqlen_kv(lengths()),
      score(any_float()) {}

ValueRange range_of(const Expression& expression, const RangeEnvironment& environment) {
  const Operation operation = expression.operation();
  switch (operation) {
    case Operation::integer_literal:
      return ValueRange::of(exactly_int(expression.integer_value()));
    case Operation::number_literal:
      return ValueRange::of(exactly_float(static_cast<float>(expression.number_value())));
    case Operation::boolean_literal:
      return ValueRange::of(exactly_bool(expression.boolean_value()));
    case Operation::variable:
      return variable_range(expression.which_variable(), environment);
    case Operation::scalar:
      return scalar_range(expression, environment);
    case Operation::look_up:
      return look_up_range(expression, environment);
    default:
      break;
  }
  const ValueRange a = range_of(expression.operand(0), environment);
  const ValueRange b = expression.operands().size() > 1 ? range_of(expression.operand(1), environment) : a;
  switch (operation) {
    case Operation::logical_not:
      return ValueRange::of(not_truth(a.truth));
    case Operation::logical_and:
      return ValueRange::of(and_truths(a.truth, b.truth));
    case Operation::logical_or:
      return ValueRange::of(or_truths(a.truth, b.truth));
    case Operation::choose:
      return choose(a.truth, b, range_of(expression.operand(2), environment));
    case Operation::to_number:
      return ValueRange::of(int_to_float_range(a.integer));
    case Operation::floor:
      return ValueRange::of(floor_range(a.number));
    default:
      break;
  }
  if (operation >= Operation::less && operation <= Operation::not_equal)
    return ValueRange::of(compare(operation, a, b));
  if (a.type == ValueType::number) return ValueRange::of(on_floats(operation, a.number, b.number));
  return ValueRange::of(on_integers(operation, a.integer, b.integer));
}

}  // namespace tilewright
