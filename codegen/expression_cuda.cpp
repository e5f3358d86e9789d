// Values: an expression as C++ text with the interpreter's meaning. Ints are computed in 32 bits where their
// ranges say that it gives the same.
#include "codegen/expression_cuda.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "codegen/expression_cuda_text.h"
#include "codegen/expression_ranges.h"
#include "codegen/expression_words.h"
#include "codegen/kernel_expressions.h"

namespace tilewright {
namespace {

using O = Operation;
using ranges::IntRange;

constexpr int cast_level = unary_level, sum_level = 6;
constexpr size_t longest_line = 72;  // of an operand; longer ones get a name

IntRange static_range(const Expression& expression) {
  static const RangeEnvironment anywhere;
  return range_of(expression, anywhere).integer;
}

bool fits_int(IntRange range) {
  return range.low >= INT32_MIN && range.high <= INT32_MAX;
}
bool may_wrap(IntRange range) {
  return range.low == INT64_MIN;
}

/// C++ text; `wide` says that an int has type long long.
struct Text {
  std::string text;
  int level = primary_level;
  bool wide = false;
};

std::string grouped(const Text& text, int least_level) {
  return text.level < least_level ? "(" + text.text + ")" : text.text;
}

std::string widened(const Text& text) {
  return text.wide ? grouped(text, choose_level) : "(long long)" + grouped(text, unary_level);
}

std::string call(const std::string& name, std::initializer_list<std::string> arguments) {
  std::string text = name + "(";
  for (const std::string& argument : arguments) text += (text.back() == '(' ? "" : ", ") + argument;
  return text + ")";
}

std::string float_text(double value) {
  if (value > 3.5e38) return "INFINITY";
  char buffer[40];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value)).ptr);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text + "f";
}

/// factor * q + factor * kv + what is the same all over a tile.
struct Affine {
  int64_t q = 0, kv = 0;
};

std::optional<Affine> affine(const Expression& expression) {
  const Operation operation = expression.operation();
  if (operation == O::variable && expression.which_variable() == ExpressionVariable::q) return Affine{1, 0};
  if (operation == O::variable && expression.which_variable() == ExpressionVariable::kv) return Affine{0, 1};
  if (is_uniform(expression)) return Affine{};
  const auto scaled = [](const std::optional<Affine>& a, int64_t factor) -> std::optional<Affine> {
    if (!a || factor < -8 || factor > 8) return std::nullopt;  // all numbers stay small
    return Affine{a->q * factor, a->kv * factor};
  };
  if (operation == O::negate) return scaled(affine(expression.operand(0)), -1);
  if (operation == O::multiply) {
    for (size_t i : {0, 1})
      if (expression.operand(i).operation() == O::integer_literal)
        return scaled(affine(expression.operand(1 - i)), expression.operand(i).integer_value());
    return std::nullopt;
  }
  if (operation != O::add && operation != O::subtract) return std::nullopt;
  const std::optional<Affine> a = affine(expression.operand(0)),
                              b = scaled(affine(expression.operand(1)), operation == O::add ? 1 : -1);
  if (!a || !b) return std::nullopt;
  return Affine{a->q + b->q, a->kv + b->kv};
}

class ValuePrinter {
 public:
  /// How variables q and kv are spelt.
  enum class Spelling {
    plain,   // q, kv
    split,   // the same; floats of them as one conversion for a whole tile and a constant for each element
    of_tile  // at.q, at.kv
  };
  ValuePrinter(std::string& statements, int& names, Spelling spelling = Spelling::plain)
      : statements_(statements), names_(names), spelling_(spelling) {}

  /// In what was printed, spelt plainly.
  bool uses(ExpressionVariable variable) const { return used_.count(variable) != 0; }

  /// The value as an operand; parts that are long stand in statements before it.
  Text print(const Expression& expression, bool last = false) {
    Text text = print_whole(expression);
    if (last || text.text.size() <= longest_line) return text;
    const char* type = expression.type() == ValueType::boolean  ? "bool"
                       : expression.type() == ValueType::number ? "float"
                       : text.wide                              ? "long long"
                                                                : "int";
    const std::string name = "v" + std::to_string(++names_);
    statements_ += "  const " + std::string(type) + " " + name + " = " + text.text + ";\n";
    return {name, primary_level, text.wide};
  }

 private:
  Text print_whole(const Expression& expression) {
    switch (expression.operation()) {
      case O::integer_literal:
        return print_integer(expression.integer_value());
      case O::number_literal:
        return {float_text(expression.number_value())};
      case O::boolean_literal:
        return {expression.boolean_value() ? "true" : "false"};
      case O::variable:
        return print_variable(expression.which_variable());
      case O::scalar:
        return {"scope.scalar_" + expression.name()};
      case O::look_up:
        return print_look_up(expression);
      case O::choose:
        return print_choose(expression);
      case O::logical_not:
        return {"!" + grouped(print(expression.operand(0)), primary_level), unary_level};
      case O::to_number:
        if (const std::optional<Text> text = print_float_position(expression.operand(0))) return *text;
        return {"(float)" + grouped(print(expression.operand(0)), primary_level), cast_level};
      case O::floor:
        return {call("floor_to_int", {print(expression.operand(0)).text})};
      default:
        break;
    }
    if (expression.type() == ValueType::integer) return print_int_operation(expression);
    return print_other_operation(expression);
  }

  Text print_variable(ExpressionVariable variable) {
    const bool position = variable == ExpressionVariable::q || variable == ExpressionVariable::kv;
    used_.insert(variable);
    return {(spelling_ == Spelling::of_tile && position ? "at." : "") + variable_text(variable)};
  }

  /// The float of a sum of positions. Exact below 2^24, beyond it off by a unit in the last place.
  std::optional<Text> print_float_position(const Expression& integer) {
    if (spelling_ != Spelling::split) return std::nullopt;
    const bool absolute = integer.operation() == O::abs;
    const std::optional<FloatPosition> position = float_position(absolute ? integer.operand(0) : integer);
    if (!position) return std::nullopt;
    const std::string text = position->of_tile + " + " + position->of_element;
    return absolute ? Text{call("absolute", {text})} : Text{text, sum_level};
  }

  /// Its terms.
  struct FloatPosition {
    std::string of_tile, of_element;
  };
  std::optional<FloatPosition> float_position(const Expression& integer) {
    const std::optional<Affine> factors = affine(integer);
    if (!factors || (factors->q == 0 && factors->kv == 0) || !fits_int(static_range(integer)))
      return std::nullopt;
    const Text base = ValuePrinter(statements_, names_, Spelling::of_tile).print(integer);
    if (base.wide) return std::nullopt;
    std::string offset;
    for (const auto& [factor, name] : {std::pair{factors->q, "row"}, std::pair{factors->kv, "column"}}) {
      if (factor == 0) continue;
      offset += offset.empty() ? (factor < 0 ? "-" : "") : factor < 0 ? " - " : " + ";
      offset += (std::abs(factor) == 1 ? "" : std::to_string(std::abs(factor)) + " * ") + name;
    }
    const bool single = std::abs(factors->q) + std::abs(factors->kv) == 1;
    return FloatPosition{"(float)" + grouped(base, primary_level),
                         "(float)" + (single ? offset : "(" + offset + ")")};
  }

  static Text print_integer(int64_t value) {
    const bool wide = value > INT32_MAX;
    if (value == INT64_MIN) return {"(-9223372036854775807LL - 1)", primary_level, true};
    return {std::to_string(value) + (wide ? "LL" : ""), value < 0 ? unary_level : primary_level, wide};
  }

  Text print_look_up(const Expression& expression) {
    std::string text = "tensor_" + expression.name() + "(scope";
    for (const Expression& index : expression.operands()) {
      const Text value = print(index);
      text += ", " + (value.wide ? call("saturated_index", {value.text}) : value.text);
    }
    return {text + ")"};
  }

  Text print_choose(const Expression& expression) {
    const Text condition = print(expression.operand(0)), a = print(expression.operand(1)),
               b = print(expression.operand(2));
    return {grouped(condition, choose_level + 1) + " ? " + grouped(a, choose_level) + " : " +
                grouped(b, choose_level),
            choose_level, a.wide || b.wide};
  }

  /// ALiBi's slope times the distance, as a product for the tile and one for the element: the latter is one
  /// instruction, and the same for several elements. Slopes are below 1 and offsets within a tile below 2^9,
  /// so that where the products cancel they are off by 2^-15 at most.
  std::optional<Text> print_alibi(const Expression& expression) {
    const auto is_slope = [](const Expression& e) {
      return e.operation() == O::scalar && e.name() == alibi_slope_name;
    };
    if (spelling_ != Spelling::split || expression.operation() != O::multiply ||
        !is_slope(expression.operand(0)) || expression.operand(1).operation() != O::to_number)
      return std::nullopt;
    const std::optional<FloatPosition> position = float_position(expression.operand(1).operand(0));
    if (!position) return std::nullopt;
    const std::string slope = print(expression.operand(0)).text + " * ";
    return Text{slope + position->of_tile + " + " + slope + position->of_element, sum_level};
  }

  /// Comparisons, logic and what works on floats.
  Text print_other_operation(const Expression& expression) {
    if (const std::optional<Text> text = print_alibi(expression)) return *text;
    const Text a = print(expression.operand(0));
    const std::optional<Text> b =
        expression.operands().size() == 2 ? std::optional(print(expression.operand(1))) : std::nullopt;
    const auto function = [&](const char* name) {
      return Text{b ? call(name, {a.text, b->text}) : call(name, {a.text})};
    };
    switch (expression.operation()) {
      case O::negate:
        return {"-" + grouped(a, primary_level), unary_level};
      case O::abs:
        return function("absolute");
      case O::min:
        return function("smaller_of");
      case O::max:
        return function("larger_of");
      case O::exp:
        return function("exp_of");
      case O::log:
        return function("log_of");
      case O::tanh:
        return function("tanh_of");
      case O::pow:
        return function("power_of");
      case O::logical_and:
      case O::logical_or:
        // Both sides evaluated: a look-up behind a condition would be begun anew for each element.
        if (looks_up(expression.operand(1)))
          return {grouped(a, primary_level) + (expression.operation() == O::logical_and ? " & " : " | ") +
                      grouped(*b, primary_level),
                  choose_level};
        [[fallthrough]];
      default:
        return infix(expression.operation(), a, *b);
    }
  }

  static bool looks_up(const Expression& expression) {
    return expression.operation() == O::look_up ||
           std::any_of(expression.operands().begin(), expression.operands().end(), looks_up);
  }

  /// && beside || in parentheses: compilers and people like them.
  static Text infix(Operation operation, const Text& a, const Text& b) {
    for (const Operator& known : binary_operators) {
      if (known.operation != operation) continue;
      const int least = operation == O::logical_or ? known.level + 2 : known.level;
      return {grouped(a, a.level == known.level ? known.level : least) + " " + std::string(known.text) + " " +
                  grouped(b, std::max(known.level + 1, least)),
              known.level, a.wide || b.wide};
    }
    return {};
  }

  Text print_int_operation(const Expression& expression) {
    const Operation operation = expression.operation();
    const Text a = print(expression.operand(0));
    const IntRange range = static_range(expression);
    if (expression.operands().size() == 1) return print_int_unary(operation, a, range);
    const Text b = print(expression.operand(1));
    if (operation == O::divide || operation == O::modulo) return print_division(expression, a, b);
    if (operation == O::min || operation == O::max)
      return same_width(operation == O::min ? "smaller_of" : "larger_of", a, b, false);
    if (may_wrap(range))
      return {call(operation == O::add        ? "wrapping_add"
                   : operation == O::subtract ? "wrapping_subtract"
                                              : "wrapping_multiply",
                   {a.text, b.text}),
              primary_level, true};
    const bool widen = !fits_int(range) && !a.wide && !b.wide;
    return infix(operation, widen ? Text{widened(a), cast_level, true} : a, b);
  }

  static Text print_int_unary(Operation operation, const Text& a, IntRange range) {
    const bool negate = operation == O::negate;
    if (may_wrap(range))
      return {negate ? call("wrapping_subtract", {"0", a.text}) : call("wrapping_abs", {a.text}),
              primary_level, true};
    const bool wide = a.wide || !fits_int(range);
    const Text operand = wide && !a.wide ? Text{widened(a), cast_level, true} : a;
    if (negate) return {"-" + grouped(operand, primary_level), unary_level, wide};
    return {call("abs_of", {operand.text}), primary_level, wide};
  }

  static Text same_width(const std::string& name, const Text& a, const Text& b, bool widen) {
    const bool wide = widen || a.wide || b.wide;
    return {wide ? call(name, {widened(a), widened(b)}) : call(name, {a.text, b.text}), primary_level, wide};
  }

  static Text print_division(const Expression& expression, const Text& a, const Text& b) {
    const bool divide = expression.operation() == O::divide;
    const IntRange dividend = static_range(expression.operand(0)),
                   divisor = static_range(expression.operand(1));
    if (dividend.low >= 0 && divisor.low > 0) return infix(expression.operation(), a, b);
    const bool literal = expression.operand(1).operation() == O::integer_literal;
    const uint64_t value = literal ? static_cast<uint64_t>(expression.operand(1).integer_value()) : 0;
    if (value != 0 && (value & (value - 1)) == 0 &&
        value <= uint64_t{1} << 30) {  // also right for negative dividends
      if (divide)
        return {"(" + grouped(a, unary_level) + " >> " + std::to_string(__builtin_ctzll(value)) + ")",
                primary_level, a.wide};
      return {"(" + grouped(a, unary_level) + " & " + std::to_string(value - 1) + ")", primary_level, a.wide};
    }
    const bool overflows = may_wrap(dividend);
    if (overflows) return same_width(divide ? "wrapping_divide" : "wrapping_modulo", a, b, true);
    return same_width(divide ? "floor_divide" : "floor_modulo", a, b, !fits_int(static_range(expression)));
  }

  std::string& statements_;
  int& names_;
  Spelling spelling_;
  std::set<ExpressionVariable> used_;
};

}  // namespace

std::string value_function(const std::string& signature, const Expression& expression) {
  std::string statements;
  int names = 0;
  const Text value = ValuePrinter(statements, names).print(expression, true);
  return "/// " + to_text(expression) + "\n__device__ __forceinline__ " + signature + " {\n" + statements +
         "  return " + value.text + ";\n}\n";
}

std::string variable_text(ExpressionVariable variable) {
  const bool position = variable == ExpressionVariable::q || variable == ExpressionVariable::kv ||
                        variable == ExpressionVariable::score;
  return (position ? "" : "scope.") + std::string(name_of(variable));
}

std::string value_text(const Expression& expression, std::string& statements, int& names) {
  return ValuePrinter(statements, names).print(expression, true).text;
}

bool is_uniform(const Expression& expression) {
  return !expression.uses(ExpressionVariable::q) && !expression.uses(ExpressionVariable::kv) &&
         !expression.uses(ExpressionVariable::score);
}

std::string mask_function(const Expression& mask) {
  return value_function("bool mask_of(const Scope& scope, int q, int kv)", mask);
}

std::string score_function(const Expression& score, const std::string& name) {
  std::string statements;
  int names = 0;
  ValuePrinter printer(statements, names, ValuePrinter::Spelling::split);
  const std::string value = printer.print(score, true).text;
  std::string positions;
  if (printer.uses(ExpressionVariable::q)) positions += "  const int q = at.q + row;\n";
  if (printer.uses(ExpressionVariable::kv)) positions += "  const int kv = at.kv + column;\n";
  return "/// " + to_text(score) + "\n__device__ __forceinline__ float " + name +
         "(const Scope& scope, const Positions& at, int row, int column, float score) {\n" + positions +
         statements + "  return " + value + ";\n}\n";
}

}  // namespace tilewright
