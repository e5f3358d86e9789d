#include "codegen/kernel_expressions.h"

#include <algorithm>
#include <cmath>

#include "codegen/expression_cuda.h"
#include "codegen/expression_derivative.h"
#include "codegen/expression_key_ranges.h"
#include "codegen/look_up_tables.h"

namespace tilewright {
namespace {

using O = Operation;

Expression variable(ExpressionVariable which) {
  return Expression::variable(which);
}

/// The constant c of an expression q + c.
std::optional<int64_t> behind_query(const Expression& expression) {
  const auto is_query = [](const Expression& e) {
    return e.operation() == O::variable && e.which_variable() == ExpressionVariable::q;
  };
  if (is_query(expression)) return 0;
  if (expression.operation() != O::add && expression.operation() != O::subtract) return std::nullopt;
  const Expression &a = expression.operand(0), &b = expression.operand(1);
  if (!is_query(a) || b.operation() != O::integer_literal) return std::nullopt;
  return expression.operation() == O::add ? b.integer_value() : -b.integer_value();
}

/// Narrows the window by a rule; false if the rule is of another kind.
bool narrow(Mask& window, const KeyRule& rule) {
  if (rule.kind == KeyRule::Kind::all_of)
    return std::all_of(rule.rules.begin(), rule.rules.end(),
                       [&](const KeyRule& part) { return narrow(window, part); });
  if (rule.kind != KeyRule::Kind::at_most && rule.kind != KeyRule::Kind::at_least) return false;
  const std::optional<int64_t> behind = behind_query(*rule.expression);
  if (!behind) return false;
  int64_t& side = rule.kind == KeyRule::Kind::at_most ? window.right : window.left;
  side = std::min(side, rule.kind == KeyRule::Kind::at_most ? *behind : -*behind);
  return true;
}

/// Whether keys beyond some distance after the query are hidden.
bool limits_later_keys(const KeyRule& rule) {
  if (rule.kind == KeyRule::Kind::at_most) return rule.expression->uses(ExpressionVariable::q);
  return std::any_of(rule.rules.begin(), rule.rules.end(), limits_later_keys);
}

/// Whether keys beyond some distance before the query, or before where its look-ups say, are hidden.
bool limits_earlier_keys(const KeyRule& rule) {
  if (rule.kind == KeyRule::Kind::at_least) return rule.expression->uses(ExpressionVariable::q);
  return std::any_of(rule.rules.begin(), rule.rules.end(), limits_earlier_keys);
}

Expression with_alibi(const Expression& score) {
  const Expression distance =
      Expression::make(O::subtract, {variable(ExpressionVariable::q), variable(ExpressionVariable::kv)});
  const Expression term =
      Expression::make(O::multiply, {Expression::scalar(alibi_slope_name, ScalarType::number), distance});
  return Expression::make(O::subtract, {score, Expression::make(O::abs, {term})});
}

ElementType bias_type(const AttentionSpec& spec) {
  return spec.dtype.q == DataType::bf16 ? ElementType::bf16 : ElementType::fp16;
}

Expression with_bias(const Expression& score, ElementType type) {
  return Expression::make(
      O::add,
      {score, Expression::look_up(bias_tensor, type,
                                  {variable(ExpressionVariable::batch), variable(ExpressionVariable::head),
                                   variable(ExpressionVariable::q), variable(ExpressionVariable::kv)})});
}

std::optional<Expression> with_alibi_and_bias(std::optional<Expression> score, const AttentionSpec& spec) {
  if (!score && (spec.alibi || spec.bias)) score = variable(ExpressionVariable::score);
  if (spec.alibi) score = with_alibi(*score);
  if (spec.bias) score = with_bias(*score, bias_type(spec));
  return score;
}

void take_mask(KernelExpressions& result, const Mask& mask) {
  if (mask.kind != Mask::Kind::expression) {
    result.window = mask;
    const bool causal = mask.kind == Mask::Kind::causal || mask.kind == Mask::Kind::causal_top_left;
    result.last_rows_first = causal || (mask.kind == Mask::Kind::window && mask.right != Mask::unlimited);
    return;
  }
  const KeyRule rule = key_rule(*mask.expression);
  Mask window{Mask::Kind::window};
  if (narrow(window, rule)) {
    // An empty window is left to the expression: it needs no shape of its own.
    const bool both = window.left != Mask::unlimited && window.right != Mask::unlimited;
    const int64_t far = int64_t{1} << 31;
    const auto in_reach = [&](int64_t side) {
      return side == Mask::unlimited || (side >= -far && side <= far);
    };
    if (in_reach(window.left) && in_reach(window.right) && !(both && window.left + window.right < 0)) {
      result.window = window;
      result.last_rows_first = window.right != Mask::unlimited;
      return;
    }
  }
  result.mask = mask.expression;
  result.has_limits = gives_limits(rule);
  result.walk = says_all(rule) ? KeyWalkKind::range : KeyWalkKind::scan;
  result.walks_by_warp = result.walk == KeyWalkKind::scan || !range_look_ups(*mask.expression).empty();
  result.last_rows_first = limits_later_keys(rule);
  result.sees_part = limits_later_keys(rule) && limits_earlier_keys(rule);
}

// The c of c * tanh(score / c), if it is one that `softcap` may be; of any other score 0.
double cap_of(const Expression& score) {
  if (score.operation() != O::multiply) return 0;
  for (int i : {0, 1}) {
    const Expression &cap = score.operand(i), &curve = score.operand(1 - i);
    if (cap.operation() != O::number_literal || curve.operation() != O::tanh) continue;
    const Expression& inner = curve.operand(0);
    if (inner.operation() == O::divide && inner.operand(0) == variable(ExpressionVariable::score) &&
        inner.operand(1) == cap && cap.number_value() >= 1e-6 && cap.number_value() <= 1e6)
      return cap.number_value();
  }
  return 0;
}

}  // namespace

double alibi_slope(int64_t head, int64_t heads) {
  const auto n = static_cast<double>(alibi_heads(heads)), h = static_cast<double>(head);
  return std::exp2(h < n ? -8 * (h + 1) / n : -4 * (2 * (h - n) + 1) / n);
}

int64_t alibi_heads(int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  return power;
}

Declarations launch_declarations(const AttentionSpec& spec) {
  using Extent = Dimension::Extent;
  Declarations declarations = spec.declarations;
  if (spec.alibi) declarations.scalars[alibi_scalar] = ScalarType::integer;
  if (spec.bias)
    declarations.tensors[bias_tensor] = {bias_type(spec),
                                         {{Extent::batch}, {Extent::head}, {Extent::q}, {Extent::kv}}};
  return declarations;
}

Declarations kernel_declarations(const AttentionSpec& spec) {
  Declarations declarations = launch_declarations(spec);
  if (spec.bias_gradient)
    declarations.tensors[bias_gradient_tensor] = {ElementType::float32,
                                                  declarations.tensors.at(bias_tensor).dimensions};
  return declarations;
}

std::optional<Expression> score_expression(const AttentionSpec& spec) {
  return with_alibi_and_bias(spec.score, spec);
}

KernelExpressions kernel_expressions(const AttentionSpec& spec) {
  KernelExpressions result;
  result.declarations = kernel_declarations(spec);
  take_mask(result, spec.mask);
  // The backward kernels hold scores the other way round, or in other parts: they evaluate the mask itself.
  if (spec.pass == Pass::backward) result.has_limits = false;
  if (result.walk == KeyWalkKind::scan) result.tables = look_up_tables(spec);
  std::optional<Expression> score = spec.score;
  result.softcap = spec.softcap;
  if (score && spec.softcap == 0) {
    result.softcap = cap_of(*score);
    if (result.softcap != 0) score.reset();
  }
  result.score = with_alibi_and_bias(score, spec);
  if (!result.score) return result;
  const Expression slope = derivative_by_score(*result.score);
  const bool is_one = slope.operation() == O::number_literal && slope.number_value() == 1;
  if (!is_one) result.slope = slope;
  return result;
}

bool KernelExpressions::mask_knows_heads() const {
  return mask && (mask->uses(ExpressionVariable::head) || mask->uses(ExpressionVariable::kv_head) ||
                  mask->uses(ExpressionVariable::batch));
}

}  // namespace tilewright
