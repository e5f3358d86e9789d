#include "codegen/expression_key_ranges.h"

#include <algorithm>
#include <utility>

namespace tilewright {
namespace {

using Kind = KeyRule::Kind;
using O = Operation;

bool uses_key(const Expression& expression) {
  return expression.uses(ExpressionVariable::kv);
}

KeyRule leaf(Kind kind, Expression expression) {
  return {kind, std::move(expression), {}};
}
KeyRule both(KeyRule a, KeyRule b) {
  if (a.kind == Kind::unknown && b.kind == Kind::unknown) return {};
  return {Kind::all_of, std::nullopt, {std::move(a), std::move(b)}};
}
KeyRule either(KeyRule a, KeyRule b) {
  return {Kind::any_of, std::nullopt, {std::move(a), std::move(b)}};
}

/// Algebra is for numbers that do not wrap.
bool never_wraps(const Expression& expression) {
  static const RangeEnvironment anywhere;
  return ranges::is_moderate(range_of(expression, anywhere).integer);
}

/// A sum of multiples of expressions, and a constant.
struct Sum {
  std::vector<std::pair<int64_t, Expression>> terms;
  int64_t constant = 0;

  /// False if a number becomes too large to reckon with.
  bool add(int64_t factor, const Expression& expression) {
    for (auto& [known, term] : terms)
      if (term == expression) return !__builtin_add_overflow(known, factor, &known) && is_moderate(known);
    terms.emplace_back(factor, expression);
    return true;
  }

  bool add_constant(int64_t factor, int64_t value) {
    int64_t product;
    return !__builtin_mul_overflow(factor, value, &product) &&
           !__builtin_add_overflow(constant, product, &constant) && is_moderate(constant);
  }

  static bool is_moderate(int64_t value) { return ranges::is_moderate(ranges::exactly_int(value)); }

  /// The factor of kv, which leaves the sum.
  int64_t take_key() {
    for (auto term = terms.begin(); term != terms.end(); ++term)
      if (term->second.operation() == O::variable) {
        if (term->second.which_variable() != ExpressionVariable::kv) continue;
        const int64_t factor = term->first;
        terms.erase(term);
        return factor;
      }
    return 0;
  }
};

/// Adds `factor` times the expression. False where that is no such sum with kv in plain terms alone.
bool add_linear(Sum& sum, int64_t factor, const Expression& expression) {
  if (!never_wraps(expression)) return false;
  const Operation operation = expression.operation();
  const auto operand = [&](size_t i) { return expression.operand(i); };
  int64_t product;
  switch (operation) {
    case O::integer_literal:
      return sum.add_constant(factor, expression.integer_value());
    case O::negate:
      return add_linear(sum, -factor, operand(0));
    case O::add:
    case O::subtract:
      return add_linear(sum, factor, operand(0)) &&
             add_linear(sum, operation == O::add ? factor : -factor, operand(1));
    case O::multiply:
      for (size_t i : {0, 1})
        if (operand(i).operation() == O::integer_literal)
          return !__builtin_mul_overflow(factor, operand(i).integer_value(), &product) &&
                 Sum::is_moderate(product) && add_linear(sum, product, operand(1 - i));
      break;
    default:
      break;
  }
  const bool key = operation == O::variable && expression.which_variable() == ExpressionVariable::kv;
  return (key || !uses_key(expression)) && sum.add(factor, expression);
}

/// `sign` times the sum, terms with a positive factor first.
Expression as_expression(const Sum& sum, int64_t sign) {
  std::optional<Expression> result;
  const auto append = [&](bool positive, Expression value) {
    if (!result) {
      result = positive ? value : Expression::make(O::negate, {value});
    } else {
      result = Expression::make(positive ? O::add : O::subtract, {*result, value});
    }
  };
  for (bool positive : {true, false})
    for (const auto& [known, term] : sum.terms) {
      const int64_t factor = known * sign;
      if (factor == 0 || (factor > 0) != positive) continue;
      const int64_t size = std::abs(factor);
      append(positive, size == 1 ? term : Expression::make(O::multiply, {Expression::integer(size), term}));
    }
  const int64_t constant = sum.constant * sign;
  if (!result || constant != 0) append(constant >= 0, Expression::integer(std::abs(constant)));
  return *result;
}

Expression plus(const Expression& a, int64_t constant) {
  Sum sum;
  if (add_linear(sum, 1, a) && sum.add_constant(1, constant)) return as_expression(sum, 1);
  return Expression::make(O::add, {a, Expression::integer(constant)});
}

Expression divided(const Expression& a, int64_t divisor) {
  return divisor == 1 ? a : Expression::make(O::divide, {a, Expression::integer(divisor)});
}

KeyRule at_most(const Expression& left, const Expression& right);

/// left <= right, both linear in kv.
KeyRule linear_at_most(const Expression& left, const Expression& right) {
  Sum sum;  // left - right <= 0
  if (!add_linear(sum, 1, left) || !add_linear(sum, -1, right)) return {};
  const int64_t factor = sum.take_key();
  if (factor == 0)
    return leaf(Kind::when, Expression::make(O::less_equal, {as_expression(sum, 1), Expression::integer(0)}));
  if (factor > 0) return leaf(Kind::at_most, divided(as_expression(sum, -1), factor));
  if (!sum.add_constant(1, -factor - 1)) return {};
  return leaf(Kind::at_least, divided(as_expression(sum, 1), -factor));
}

/// a / divisor <= limit, that is a <= limit * divisor + divisor - 1; with `reverse` limit <= a / divisor,
/// that is limit * divisor <= a. Both for a positive divisor alone.
KeyRule divided_at_most(const Expression& quotient, const Expression& limit, bool reverse) {
  const Expression &a = quotient.operand(0), &divisor = quotient.operand(1);
  if (uses_key(divisor) || uses_key(limit) || !never_wraps(a)) return {};
  const Expression product = Expression::make(O::multiply, {reverse ? limit : plus(limit, 1), divisor});
  const KeyRule rule = reverse ? at_most(product, a) : at_most(a, plus(product, -1));
  if (divisor.operation() == O::integer_literal) return divisor.integer_value() > 0 ? rule : KeyRule{};
  return {Kind::provided, divisor, {rule}};
}

/// left <= right; `side` is the one that uses kv in a function.
KeyRule at_most(const Expression& left, const Expression& right) {
  if (!uses_key(left) && !uses_key(right))
    return leaf(Kind::when, Expression::make(O::less_equal, {left, right}));
  if (!never_wraps(left) || !never_wraps(right)) return {};
  for (bool on_left : {true, false}) {
    const Expression &side = on_left ? left : right, &other = on_left ? right : left;
    if (!uses_key(side)) continue;
    const Operation operation = side.operation();
    const auto compare = [&](const Expression& part) {
      return on_left ? at_most(part, other) : at_most(other, part);
    };
    if (operation == O::min || operation == O::max) {
      const bool all = (operation == O::max) == on_left;
      return all ? both(compare(side.operand(0)), compare(side.operand(1)))
                 : either(compare(side.operand(0)), compare(side.operand(1)));
    }
    if (operation == O::abs) {
      const KeyRule a = compare(side.operand(0)), b = compare(Expression::make(O::negate, {side.operand(0)}));
      return on_left ? both(a, b) : either(a, b);
    }
    if (operation == O::divide) return divided_at_most(side, other, !on_left);
  }
  return linear_at_most(left, right);
}

KeyRule comparison(Operation operation, const Expression& left, const Expression& right) {
  switch (operation) {
    case O::less:
      return at_most(left, plus(right, -1));
    case O::less_equal:
      return at_most(left, right);
    case O::greater:
      return at_most(right, plus(left, -1));
    case O::greater_equal:
      return at_most(right, left);
    case O::equal:
      return both(at_most(left, right), at_most(right, left));
    default:
      return either(at_most(left, plus(right, -1)), at_most(right, plus(left, -1)));
  }
}

Operation opposite(Operation comparison) {
  switch (comparison) {
    case O::less:
      return O::greater_equal;
    case O::less_equal:
      return O::greater;
    case O::greater:
      return O::less_equal;
    case O::greater_equal:
      return O::less;
    case O::equal:
      return O::not_equal;
    default:
      return O::equal;
  }
}

KeyRule rule_of(const Expression& mask, bool negated) {
  const Operation operation = mask.operation();
  if (!uses_key(mask)) return leaf(Kind::when, negated ? Expression::make(O::logical_not, {mask}) : mask);
  if (operation == O::logical_not) return rule_of(mask.operand(0), !negated);
  if (operation == O::logical_and || operation == O::logical_or) {
    KeyRule a = rule_of(mask.operand(0), negated), b = rule_of(mask.operand(1), negated);
    return (operation == O::logical_and) != negated ? both(a, b) : either(a, b);
  }
  if (operation == O::choose) {
    const Expression& condition = mask.operand(0);
    return either(both(rule_of(condition, false), rule_of(mask.operand(1), negated)),
                  both(rule_of(condition, true), rule_of(mask.operand(2), negated)));
  }
  const bool compares = operation >= O::less && operation <= O::not_equal;
  if (!compares || mask.operand(0).type() != ValueType::integer) return {};
  return comparison(negated ? opposite(operation) : operation, mask.operand(0), mask.operand(1));
}

bool uses_row(const Expression& expression) {
  return expression.uses(ExpressionVariable::q);
}

/// Whether every part is a limit from one and the same side, or a condition on the whole tile.
bool all_are(const KeyRule& rule, Kind side) {
  if (rule.kind == Kind::when) return !uses_row(*rule.expression);
  if (rule.rules.empty()) return rule.kind == side;
  return std::all_of(rule.rules.begin(), rule.rules.end(),
                     [&](const KeyRule& part) { return all_are(part, side); });
}

}  // namespace

KeyRule key_rule(const Expression& mask) {
  return rule_of(mask, false);
}

bool says_all(const KeyRule& rule) {
  if (rule.kind == Kind::unknown) return false;
  if (rule.kind == Kind::when) return !uses_row(*rule.expression);
  if (rule.kind == Kind::any_of && !all_are(rule, Kind::at_most) && !all_are(rule, Kind::at_least))
    return false;
  return std::all_of(rule.rules.begin(), rule.rules.end(), says_all);
}

bool gives_limits(const KeyRule& rule) {
  // What is only known of positive divisors is no exact limit of others.
  const auto is_conditional = [](const auto& self, const KeyRule& part) -> bool {
    return part.kind == Kind::provided ||
           std::any_of(part.rules.begin(), part.rules.end(), [&](const KeyRule& r) { return self(self, r); });
  };
  return says_all(rule) && !is_conditional(is_conditional, rule);
}

bool says_nothing(const KeyRule& rule) {
  if (rule.kind == Kind::any_of) return std::any_of(rule.rules.begin(), rule.rules.end(), says_nothing);
  if (rule.rules.empty()) return rule.kind == Kind::unknown;
  return std::all_of(rule.rules.begin(), rule.rules.end(), says_nothing);
}

ranges::KeyRange key_range(const KeyRule& rule, const RangeEnvironment& environment) {
  const auto part = [&](size_t i) { return key_range(rule.rules[i], environment); };
  const auto range = [&] { return range_of(*rule.expression, environment); };
  switch (rule.kind) {
    case Kind::unknown:
      break;
    case Kind::at_most:
      return ranges::keys_at_most(range().integer);
    case Kind::at_least:
      return ranges::keys_at_least(range().integer);
    case Kind::when:
      return ranges::keys_if(range().truth);
    case Kind::all_of:
      return ranges::and_keys(part(0), part(1));
    case Kind::any_of:
      return ranges::or_keys(part(0), part(1));
    case Kind::provided:
      return ranges::keys_provided(ranges::less_ints({0, 0}, range().integer), part(0));
  }
  return ranges::unknown_keys();
}

}  // namespace tilewright
