// Interval analysis as CUDA functions: calls of templates/expression_ranges.cuh, as range_of() makes them on
// the host.
#include <algorithm>

#include "codegen/expression_cuda.h"
#include "codegen/expression_cuda_text.h"
#include "codegen/expression_key_ranges.h"
#include "codegen/expression_ranges.h"
#include "codegen/look_up_tables.h"

namespace tilewright {
namespace {

using O = Operation;

constexpr size_t longest_line = 88;

/// Whether evaluation gives the very same value everywhere: no float arithmetic, whose rounding may differ.
bool is_exact(const Expression& expression) {
  const bool leaf = expression.operands().empty() || expression.operation() == O::look_up;
  if (expression.type() == ValueType::number && !leaf) return false;
  return std::all_of(expression.operands().begin(), expression.operands().end(), is_exact);
}

/// Printed as a value: the same all over the tile, and no int that the closed form's algebra may have made
/// wrap.
bool is_point(const Expression& expression) {
  if (!is_uniform(expression) || !is_exact(expression)) return false;
  static const RangeEnvironment anywhere;
  if (expression.type() != ValueType::integer || expression.operands().empty()) return true;
  return ranges::is_moderate(range_of(expression, anywhere).integer);
}

const char* type_name(ValueType type) {
  return type == ValueType::boolean ? "Truth" : type == ValueType::integer ? "IntRange" : "FloatRange";
}

std::string float_name(Operation operation) {
  switch (operation) {
    case O::negate:
      return "negate_float_range";
    case O::add:
      return "add_float_ranges";
    case O::subtract:
      return "subtract_float_ranges";
    case O::multiply:
      return "multiply_float_ranges";
    case O::divide:
      return "divide_float_ranges";
    case O::min:
      return "min_float_ranges";
    case O::max:
      return "max_float_ranges";
    case O::exp:
      return "exp_range";
    case O::log:
      return "log_range";
    case O::tanh:
      return "tanh_range";
    case O::pow:
      return "pow_ranges";
    default:
      return "abs_float_range";
  }
}

std::string int_name(Operation operation) {
  switch (operation) {
    case O::negate:
      return "negate_int_range";
    case O::add:
      return "add_int_ranges";
    case O::subtract:
      return "subtract_int_ranges";
    case O::multiply:
      return "multiply_int_ranges";
    case O::divide:
      return "divide_int_ranges";
    case O::modulo:
      return "modulo_int_ranges";
    case O::min:
      return "min_int_ranges";
    case O::max:
      return "max_int_ranges";
    default:
      return "abs_int_range";
  }
}

class RangePrinter {
 public:
  RangePrinter(std::string& statements, const std::vector<Expression>& tables, bool held)
      : statements_(statements), tables_(tables), held_(held) {}

  std::string print(const Expression& expression) {
    return named(type_name(expression.type()), print_whole(expression));
  }

  std::string print_rule(const KeyRule& rule) { return named("KeyRange", print_whole_rule(rule)); }

 private:
  std::string named(const std::string& type, const std::string& text) {
    if (text.size() <= longest_line) return text;
    const std::string name = "r" + std::to_string(++names_);
    statements_ += "  const " + type + " " + name + " = " + text + ";\n";
    return name;
  }

  std::string print_point(const Expression& expression) {
    const std::string value = value_text(expression, statements_, values_);
    const ValueType type = expression.type();
    return (type == ValueType::boolean   ? "exactly_bool("
            : type == ValueType::integer ? "exactly_int("
                                         : "exactly_float(") +
           value + ")";
  }

  std::string print_whole(const Expression& expression) {
    if (is_point(expression)) return print_point(expression);
    const Operation operation = expression.operation();
    if (operation == O::variable)
      return expression.which_variable() == ExpressionVariable::score
                 ? "any_float()"
                 : variable_text(expression.which_variable());
    if (operation == O::look_up) return print_look_up(expression);
    const std::string a = print(expression.operand(0));
    const std::string b = expression.operands().size() > 1 ? print(expression.operand(1)) : "";
    const auto call = [&](const std::string& name) {
      return name + "(" + a + (b.empty() ? "" : ", " + b) + ")";
    };
    switch (operation) {
      case O::logical_not:
        return call("not_truth");
      case O::logical_and:
        return call("and_truths");
      case O::logical_or:
        return call("or_truths");
      case O::to_number:
        return call("int_to_float_range");
      case O::floor:
        return call("floor_range");
      case O::choose: {
        const std::string name = expression.type() == ValueType::boolean   ? "choose_truth"
                                 : expression.type() == ValueType::integer ? "choose_int_range"
                                                                           : "choose_float_range";
        return name + "(" + a + ", " + b + ", " + print(expression.operand(2)) + ")";
      }
      default:
        break;
    }
    const ValueType operands = expression.operand(0).type();
    if (operation >= O::less && operation <= O::not_equal) return compare(operation, operands, a, b);
    return call(operands == ValueType::number ? float_name(operation) : int_name(operation));
  }

  static std::string compare(Operation operation, ValueType operands, const std::string& a,
                             const std::string& b) {
    const bool floats = operands == ValueType::number;
    const std::string ab = "(" + a + ", " + b + ")", ba = "(" + b + ", " + a + ")";
    const std::string equal = operands == ValueType::boolean ? "equal_truths"
                              : floats                       ? "equal_floats"
                                                             : "equal_ints";
    switch (operation) {
      case O::less:
        return (floats ? "less_floats" : "less_ints") + ab;
      case O::greater:
        return (floats ? "less_floats" : "less_ints") + ba;
      case O::less_equal:
        return floats ? "less_equal_floats" + ab : "not_truth(less_ints" + ba + ")";
      case O::greater_equal:
        return floats ? "less_equal_floats" + ba : "not_truth(less_ints" + ab + ")";
      case O::equal:
        return equal + ab;
      default:
        return "not_truth(" + equal + ab + ")";
    }
  }

  std::string print_look_up(const Expression& expression) {
    const auto table = std::find(tables_.begin(), tables_.end(), expression);
    if (table != tables_.end() && held_) return "look_ups.table_" + std::to_string(table - tables_.begin());
    if (table != tables_.end())
      return "table_" + std::to_string(table - tables_.begin()) + "_range(scope, " +
             (is_by_key(expression) ? "kv0 / block_n)"
                                    : "(q0 - scope.seqlen_kv + scope.seqlen_q) / block_m)");
    std::string text = "tensor_" + expression.name() + "_range(scope";
    for (const Expression& index : expression.operands()) text += ", saturated_range(" + print(index) + ")";
    return text + ")";
  }

  std::string print_whole_rule(const KeyRule& rule) {
    const auto part = [&](size_t i) { return print_rule(rule.rules[i]); };
    switch (rule.kind) {
      case KeyRule::Kind::at_most:
        return "keys_at_most(" + print(*rule.expression) + ")";
      case KeyRule::Kind::at_least:
        return "keys_at_least(" + print(*rule.expression) + ")";
      case KeyRule::Kind::when:
        return "keys_if(" + print(*rule.expression) + ")";
      case KeyRule::Kind::provided:
        return "keys_provided(less_ints(exactly_int(0), " + print(*rule.expression) + "), " + part(0) + ")";
      case KeyRule::Kind::all_of:
      case KeyRule::Kind::any_of: {
        const std::string a = part(0), b = part(1);
        return (rule.kind == KeyRule::Kind::all_of ? "and_keys(" : "or_keys(") + a + ", " + b + ")";
      }
      case KeyRule::Kind::unknown:
        break;
    }
    return "unknown_keys()";
  }

  std::string& statements_;
  const std::vector<Expression>& tables_;
  bool held_;
  int names_ = 0;   // of ranges: r1, r2 …
  int values_ = 0;  // of values: v1, v2 …
};

bool rule_uses_row(const KeyRule& rule) {
  if (rule.expression && rule.expression->uses(ExpressionVariable::q)) return true;
  return std::any_of(rule.rules.begin(), rule.rules.end(), rule_uses_row);
}

void collect_ranges(const Expression& expression, const std::vector<Expression>& tables,
                    std::set<std::string>& names) {
  if (is_point(expression) || std::find(tables.begin(), tables.end(), expression) != tables.end()) return;
  if (expression.operation() == O::look_up) names.insert(expression.name());
  for (const Expression& operand : expression.operands()) collect_ranges(operand, tables, names);
}

std::string function(const std::string& signature, const Expression& mask, const std::string& body) {
  return "/// " + to_text(mask) + "\n__device__ __forceinline__ " + signature + " {\n" + body + "}\n";
}

}  // namespace

std::string tile_state_function(const Expression& mask, const std::vector<Expression>& tables, bool held) {
  std::string statements;
  const std::string truth = RangePrinter(statements, tables, held).print(mask);
  std::string positions;
  if (mask.uses(ExpressionVariable::q)) positions += "  const IntRange q = {q0, q1};\n";
  if (mask.uses(ExpressionVariable::kv)) positions += "  const IntRange kv = {kv0, kv1};\n";
  return function("TileState tile_state(const Scope& scope, " +
                      std::string(held ? "const KeyLookUps& look_ups, " : "") +
                      "int q0, int q1, int kv0, int kv1)",
                  mask, positions + statements + "  return state_of(" + truth + ");\n");
}

std::string key_range_function(const Expression& mask, const std::vector<Expression>& tables) {
  const KeyRule rule = key_rule(mask);
  std::string statements;
  const std::string range = RangePrinter(statements, tables, false).print_rule(rule);
  const std::string position = rule_uses_row(rule) ? "  const IntRange q = {q0, q1};\n" : "";
  return function("KeyRange key_range(const Scope& scope, int q0, int q1)", mask,
                  position + statements + "  return " + range + ";\n");
}

std::set<std::string> range_look_ups(const Expression& mask, const std::vector<Expression>& tables) {
  std::set<std::string> names;
  collect_ranges(mask, tables, names);
  return names;
}

}  // namespace tilewright
