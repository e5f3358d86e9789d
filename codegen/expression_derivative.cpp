#include "codegen/expression_derivative.h"

#include <cmath>
#include <optional>
#include <utility>

namespace tilewright {
namespace {

using O = Operation;

Expression zero() {
  return Expression::number(0);
}
Expression one() {
  return Expression::number(1);
}

/// Of a literal or the negation of one.
std::optional<double> literal(const Expression& expression) {
  if (expression.operation() == O::number_literal) return expression.number_value();
  if (expression.operation() != O::negate) return std::nullopt;
  const std::optional<double> value = literal(expression.operand(0));
  return value ? std::optional(-*value) : std::nullopt;
}

bool is_literal(const Expression& expression, double value) {
  const std::optional<double> found = literal(expression);
  return found && *found == value;
}

/// Two literals become one where that loses no digit.
std::optional<Expression> folded(const Expression& a, const Expression& b,
                                 double (*operation)(double, double)) {
  const std::optional<double> left = literal(a), right = literal(b);
  if (!left || !right) return std::nullopt;
  const double value = operation(*left, *right);
  if (!std::isfinite(value) || static_cast<double>(static_cast<float>(value)) != value) return std::nullopt;
  return Expression::number(value);
}

Expression negated(const Expression& a) {
  if (is_literal(a, 0)) return zero();
  if (a.operation() == O::negate) return a.operand(0);
  return Expression::make(O::negate, {a});
}

Expression difference(const Expression& a, const Expression& b);

Expression sum(const Expression& a, const Expression& b) {
  if (is_literal(a, 0)) return b;
  if (is_literal(b, 0)) return a;
  if (auto value = folded(a, b, [](double x, double y) { return x + y; })) return *value;
  if (b.operation() == O::negate) return difference(a, b.operand(0));
  return Expression::make(O::add, {a, b});
}

Expression difference(const Expression& a, const Expression& b) {
  if (is_literal(a, 0)) return negated(b);
  if (is_literal(b, 0)) return a;
  if (a == b) return zero();
  if (auto value = folded(a, b, [](double x, double y) { return x - y; })) return *value;
  if (b.operation() == O::negate) return sum(a, b.operand(0));
  return Expression::make(O::subtract, {a, b});
}

Expression product(const Expression& a, const Expression& b);

Expression quotient(const Expression& a, const Expression& b) {
  if (is_literal(a, 0)) return zero();
  if (is_literal(b, 1)) return a;
  if (a == b) return one();
  if (a.operation() == O::multiply && a.operand(0) == b) return a.operand(1);
  if (a.operation() == O::multiply && a.operand(1) == b) return a.operand(0);
  if (a.operation() == O::negate) return negated(quotient(a.operand(0), b));
  return Expression::make(O::divide, {a, b});
}

Expression product(const Expression& a, const Expression& b) {
  if (is_literal(a, 0) || is_literal(b, 0)) return zero();
  if (is_literal(a, 1)) return b;
  if (is_literal(b, 1)) return a;
  if (auto value = folded(a, b, [](double x, double y) { return x * y; })) return *value;
  if (a.operation() == O::negate) return negated(product(a.operand(0), b));
  if (b.operation() == O::negate) return negated(product(a, b.operand(0)));
  if (b.operation() == O::divide && b.operand(1) == a) return b.operand(0);
  if (a.operation() == O::divide && a.operand(1) == b) return a.operand(0);
  if (b.operation() == O::divide) return quotient(product(a, b.operand(0)), b.operand(1));
  return Expression::make(O::multiply, {a, b});
}

Expression choice(const Expression& condition, const Expression& a, const Expression& b) {
  if (a == b) return a;
  if (condition.operation() == O::boolean_literal) return condition.boolean_value() ? a : b;
  return Expression::make(O::choose, {condition, a, b});
}

Expression power(const Expression& x, const Expression& y) {
  if (is_literal(y, 0)) return one();
  if (is_literal(y, 1)) return x;
  return Expression::make(O::pow, {x, y});
}

/// x^y: y x^(y-1) x' for a y that is constant, x^y (y' log x + y x' / x) in general.
Expression power_derivative(const Expression& power_of, const Expression& dx, const Expression& dy) {
  const Expression &x = power_of.operand(0), &y = power_of.operand(1);
  if (is_literal(dy, 0)) {
    const Expression change = product(product(y, power(x, difference(y, one()))), dx);
    // x^0 is 1 for every x, and x^-1 need not be a number.
    return literal(y) ? change : choice(Expression::make(O::equal, {y, zero()}), zero(), change);
  }
  return product(power_of, sum(product(dy, Expression::make(O::log, {x})), quotient(product(y, dx), x)));
}

Expression derivative(const Expression& expression) {
  if (expression.type() != ValueType::number || !expression.uses(ExpressionVariable::score)) return zero();
  const auto operand = [&](size_t i) { return expression.operand(i); };
  const auto change = [&](size_t i) { return derivative(expression.operand(i)); };
  switch (expression.operation()) {
    case O::variable:
      return one();
    case O::negate:
      return negated(change(0));
    case O::add:
      return sum(change(0), change(1));
    case O::subtract:
      return difference(change(0), change(1));
    case O::multiply:
      return sum(product(change(0), operand(1)), product(operand(0), change(1)));
    case O::divide: {
      const Expression by_first = quotient(change(0), operand(1));
      const Expression by_second = quotient(product(operand(0), change(1)), product(operand(1), operand(1)));
      return difference(by_first, by_second);
    }
    case O::min:
      return choice(Expression::make(O::less, {operand(0), operand(1)}), change(0), change(1));
    case O::max:
      return choice(Expression::make(O::greater, {operand(0), operand(1)}), change(0), change(1));
    case O::abs: {
      const Expression inner = change(0);
      return choice(Expression::make(O::less, {operand(0), zero()}), negated(inner), inner);
    }
    case O::exp:
      return product(expression, change(0));
    case O::log:
      return quotient(change(0), operand(0));
    case O::tanh:
      return product(difference(one(), Expression::make(O::multiply, {expression, expression})), change(0));
    case O::pow:
      return power_derivative(expression, change(0), change(1));
    case O::choose:
      return choice(operand(0), change(1), change(2));
    default:
      return zero();  // conversions and look-ups of ints: constant between their jumps
  }
}

}  // namespace

Expression derivative_by_score(const Expression& score) {
  return derivative(score);
}

}  // namespace tilewright
