#include "codegen/expression_evaluate.h"

#include <algorithm>
#include <cmath>

namespace tilewright {
namespace {

int64_t wrapped(uint64_t bits) {
  return static_cast<int64_t>(bits);
}
uint64_t bits(int64_t value) {
  return static_cast<uint64_t>(value);
}

int64_t floor_to_integer(double value) {
  if (std::isnan(value)) return 0;
  return static_cast<int64_t>(std::clamp(std::floor(value), -2147483648.0, 2147483647.0));
}

// As the device computes it, special cases included.
double power(double x, double y) {
  return y == 0 ? 1 : std::exp2(y * std::log2(x));
}

int64_t on_integers(Operation operation, int64_t a, int64_t b) {
  switch (operation) {
    case Operation::add:
      return wrapped(bits(a) + bits(b));
    case Operation::subtract:
      return wrapped(bits(a) - bits(b));
    case Operation::multiply:
      return wrapped(bits(a) * bits(b));
    case Operation::divide:
      return floor_divide(a, b);
    case Operation::modulo:
      return floor_modulo(a, b);
    case Operation::min:
      return a < b ? a : b;
    default:
      return a > b ? a : b;
  }
}

double on_numbers(Operation operation, double a, double b) {
  switch (operation) {
    case Operation::add:
      return a + b;
    case Operation::subtract:
      return a - b;
    case Operation::multiply:
      return a * b;
    case Operation::divide:
      return a / b;
    case Operation::pow:
      return power(a, b);
    case Operation::min:
      return a < b ? a : b;
    default:
      return a > b ? a : b;
  }
}

template <typename Number>
bool compare(Operation operation, Number a, Number b) {
  switch (operation) {
    case Operation::less:
      return a < b;
    case Operation::less_equal:
      return a <= b;
    case Operation::greater:
      return a > b;
    case Operation::greater_equal:
      return a >= b;
    case Operation::equal:
      return a == b;
    default:
      return a != b;
  }
}

Value variable_value(ExpressionVariable variable, const Environment& environment) {
  switch (variable) {
    case ExpressionVariable::q:
      return Value::of(environment.q);
    case ExpressionVariable::kv:
      return Value::of(environment.kv);
    case ExpressionVariable::head:
      return Value::of(environment.head);
    case ExpressionVariable::kv_head:
      return Value::of(environment.kv_head);
    case ExpressionVariable::batch:
      return Value::of(environment.batch);
    case ExpressionVariable::seqlen_q:
      return Value::of(environment.seqlen_q);
    case ExpressionVariable::seqlen_kv:
      return Value::of(environment.seqlen_kv);
    case ExpressionVariable::score:
      break;
  }
  return Value::of(environment.score);
}

Value scalar_value(const std::string& name, const Environment& environment) {
  if (environment.scalars)
    if (auto found = environment.scalars->find(name); found != environment.scalars->end())
      return found->second;
  throw Error(ErrorKind::internal, "expression: no value for the scalar " + name);
}

Value look_up(const Expression& expression, const Environment& environment) {
  if (!environment.look_up) throw Error(ErrorKind::internal, "expression: no tensor " + expression.name());
  std::vector<int64_t> indices;
  for (const Expression& index : expression.operands())
    indices.push_back(evaluate(index, environment).integer);
  return environment.look_up(expression.name(), indices);
}

Value evaluate_operation(const Expression& expression, const Environment& environment) {
  const Operation operation = expression.operation();
  const Value a = evaluate(expression.operand(0), environment);
  const Value b = expression.operands().size() == 2 ? evaluate(expression.operand(1), environment) : a;
  const bool numbers = a.type == ValueType::number;
  switch (operation) {
    case Operation::to_number:
      return Value::of(static_cast<double>(a.integer));
    case Operation::floor:
      return Value::of(floor_to_integer(a.number));
    case Operation::logical_not:
      return Value::of(a.integer == 0);
    case Operation::negate:
      return numbers ? Value::of(-a.number) : Value::of(wrapped(-bits(a.integer)));
    case Operation::abs:
      return numbers ? Value::of(std::fabs(a.number))
                     : Value::of(a.integer < 0 ? wrapped(-bits(a.integer)) : a.integer);
    case Operation::exp:
      return Value::of(std::exp(a.number));
    case Operation::log:
      return Value::of(std::log(a.number));
    case Operation::tanh:
      return Value::of(std::tanh(a.number));
    case Operation::less:
    case Operation::less_equal:
    case Operation::greater:
    case Operation::greater_equal:
    case Operation::equal:
    case Operation::not_equal:
      return Value::of(numbers ? compare(operation, a.number, b.number)
                               : compare(operation, a.integer, b.integer));
    default:
      return numbers ? Value::of(on_numbers(operation, a.number, b.number))
                     : Value::of(on_integers(operation, a.integer, b.integer));
  }
}

}  // namespace

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrapped(-bits(a));  // the one quotient that overflows
  const int64_t quotient = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t floor_modulo(int64_t a, int64_t b) {
  return b == 0 ? 0 : wrapped(bits(a) - bits(floor_divide(a, b)) * bits(b));
}

int64_t clamped_index(const Dimension& dimension, int64_t extent, int64_t index, int64_t seqlen_q,
                      int64_t seqlen_kv) {
  if (dimension.extent == Dimension::Extent::q) index -= seqlen_kv - seqlen_q;
  return std::clamp<int64_t>(index, 0, std::max<int64_t>(extent - 1, 0));
}

Value evaluate(const Expression& expression, const Environment& environment) {
  switch (expression.operation()) {
    case Operation::integer_literal:
      return Value::of(expression.integer_value());
    case Operation::number_literal:
      return Value::of(expression.number_value());
    case Operation::boolean_literal:
      return Value::of(expression.boolean_value());
    case Operation::variable:
      return variable_value(expression.which_variable(), environment);
    case Operation::scalar:
      return scalar_value(expression.name(), environment);
    case Operation::look_up:
      return look_up(expression, environment);
    case Operation::logical_and:
    case Operation::logical_or: {
      const bool decides = expression.operation() == Operation::logical_or;
      const bool first = evaluate(expression.operand(0), environment).integer != 0;
      return first == decides ? Value::of(decides)
                              : Value::of(evaluate(expression.operand(1), environment).integer != 0);
    }
    case Operation::choose:
      return evaluate(expression.operand(evaluate(expression.operand(0), environment).integer ? 1 : 2),
                      environment);
    default:
      return evaluate_operation(expression, environment);
  }
}

}  // namespace tilewright
