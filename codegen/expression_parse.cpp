// From text to a typed tree. Nesting is bounded, so that the recursion is.
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "codegen/expression.h"
#include "codegen/expression_evaluate.h"
#include "codegen/expression_lexer.h"
#include "codegen/expression_words.h"
#include "codegen/nearest.h"
#include "codegen/spec_rules.h"
#include "codegen/spec_yaml.h"

namespace tilewright {
namespace {

/// A subtree and where its text begins.
struct Parsed {
  Expression expression;
  size_t offset;
};

std::string typed(const Expression& expression) {
  return (expression.type() == ValueType::integer ? "an " : "a ") + std::string(name_of(expression.type()));
}

bool is_comparison(Operation operation) {
  return operation >= Operation::less && operation <= Operation::not_equal;
}

class Parser {
 public:
  Parser(std::string_view text, const Declarations& declarations, bool mask)
      : lexer_(text), declarations_(declarations), mask_(mask) {
    if (text.size() > max_expression_text)
      throw ExpressionError("the expression has " + std::to_string(text.size()) +
                                " bytes; expected at most " + std::to_string(max_expression_text),
                            0);
    advance();
  }

  Parsed parse() {
    if (token_.kind == Token::Kind::end) fail("the expression is empty; expected such as `q >= kv`");
    Parsed result = parse_choose();
    if (token_.kind != Token::Kind::end) fail_expected("an operator or the end");
    return result;
  }

 private:
  [[noreturn]] static void fail_at(size_t offset, const std::string& message) {
    throw ExpressionError(message, offset);
  }
  [[noreturn]] void fail(const std::string& message) const { fail_at(token_.offset, message); }
  [[noreturn]] void fail_expected(const std::string& what) const {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> other_words = {
        {{"and", "&&"}, {"or", "||"}, {"not", "!"}}};
    for (const auto& [word, symbol] : other_words)
      if (token_.text == word) fail("`" + std::string(word) + "` is written `" + std::string(symbol) + "`");
    fail((token_.kind == Token::Kind::end ? "the expression ends here"
                                          : "found " + quoted_for_message(token_.text)) +
         "; expected " + what);
  }

  void advance() { token_ = lexer_.next(); }
  bool at(std::string_view symbol) const {
    return token_.kind == Token::Kind::symbol && token_.text == symbol;
  }
  bool skip(std::string_view symbol) {
    if (!at(symbol)) return false;
    advance();
    return true;
  }
  void expect(std::string_view symbol) {
    if (!skip(symbol)) fail_expected("`" + std::string(symbol) + "`");
  }

  /// Counts the open levels of the recursion.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > 2 * max_expression_height)  // a level of the tree opens at most two here

        parser_.fail("nested more than " + std::to_string(max_expression_height) + " levels deep");
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  Parsed checked(Expression expression, size_t offset, size_t place) const {
    if (expression.size() > max_expression_size)
      fail_at(place,
              "the expression has over " + std::to_string(max_expression_size) + " operations and operands");
    if (expression.height() > max_expression_height)
      fail_at(place, "nested more than " + std::to_string(max_expression_height) + " levels deep");
    return {std::move(expression), offset};
  }

  Parsed parse_choose() {
    const Level level(*this);
    Parsed condition = parse_binary(choose_level + 1);
    const size_t place = token_.offset;
    if (!skip("?")) return condition;
    if (condition.expression.type() != ValueType::boolean)
      fail_at(condition.offset,
              "the condition of ?: is " + typed(condition.expression) + "; expected a bool");
    Parsed then = parse_choose();
    expect(":");
    Parsed otherwise = parse_choose();
    if ((then.expression.type() == ValueType::boolean) != (otherwise.expression.type() == ValueType::boolean))
      fail_at(otherwise.offset, "the sides of ?: are " + typed(then.expression) + " and " +
                                    typed(otherwise.expression) + "; expected two bools or two numbers");
    return checked(
        Expression::make(Operation::choose, {condition.expression, then.expression, otherwise.expression}),
        condition.offset, place);
  }

  const Operator* binary_operator() const {
    if (token_.kind != Token::Kind::symbol) return nullptr;
    for (const Operator& known : binary_operators)
      if (known.text == token_.text) return &known;
    return nullptr;
  }

  Parsed parse_binary(int least_level) {
    Parsed left = parse_unary();
    for (const Operator* known = binary_operator(); known && known->level >= least_level;
         known = binary_operator()) {
      const size_t place = token_.offset;
      advance();
      const Parsed right = parse_binary(known->level + 1);
      check_operands(*known, left, right, place);
      left = checked(Expression::make(known->operation, {left.expression, right.expression}), left.offset,
                     place);
      check_constant(left.expression, right.offset, place);
    }
    return left;
  }

  void check_operands(const Operator& known, const Parsed& left, const Parsed& right, size_t place) const {
    const ValueType a = left.expression.type(), b = right.expression.type();
    const std::string name = "`" + std::string(known.text) + "`";
    const auto refuse_unless = [&](bool fits, const Parsed& operand, const std::string& expected) {
      if (!fits)
        fail_at(operand.offset, name + " has " + typed(operand.expression) + " here; expected " + expected);
    };
    if (known.operation == Operation::logical_and || known.operation == Operation::logical_or) {
      refuse_unless(a == ValueType::boolean, left, "a bool");
      refuse_unless(b == ValueType::boolean, right, "a bool");
    } else if (known.operation == Operation::equal || known.operation == Operation::not_equal) {
      if ((a == ValueType::boolean) != (b == ValueType::boolean))
        fail_at(place, name + " compares " + typed(left.expression) + " with " + typed(right.expression) +
                           "; expected two bools or two numbers");
    } else if (known.operation == Operation::modulo) {
      refuse_unless(a == ValueType::integer, left, "an int");
      refuse_unless(b == ValueType::integer, right, "an int");
    } else {
      const bool chain = is_comparison(known.operation) && is_comparison(left.expression.operation());
      const std::string number = "an int or a float";
      refuse_unless(a != ValueType::boolean, left,
                    number + (chain ? "; a chain a < b < c is written a < b && b < c" : ""));
      refuse_unless(b != ValueType::boolean, right, number);
    }
  }

  /// Constants are checked where they stand: a divisor of 0, an int that does not fit.
  static void check_constant(const Expression& expression, size_t right, size_t place) {
    const Operation operation = expression.operation();
    if (expression.type() != ValueType::integer) return;
    if (operation == Operation::divide || operation == Operation::modulo) {
      const Expression& divisor = expression.operand(1);
      if (divisor.is_constant() && evaluate(divisor, {}).integer == 0) fail_at(right, "division by zero");
    }
    if (!expression.is_constant()) return;
    const int64_t a = evaluate(expression.operand(0), {}).integer,
                  b = evaluate(expression.operand(1), {}).integer;
    int64_t result;
    const bool overflow = (operation == Operation::add && __builtin_add_overflow(a, b, &result)) ||
                          (operation == Operation::subtract && __builtin_sub_overflow(a, b, &result)) ||
                          (operation == Operation::multiply && __builtin_mul_overflow(a, b, &result));
    if (overflow) fail_at(place, "this constant is beyond 2^63; ints have 64 bits");
  }

  Parsed parse_unary() {
    const Level level(*this);
    const size_t place = token_.offset;
    if (skip("-")) {
      const Parsed operand = parse_unary();
      if (operand.expression.type() == ValueType::boolean)
        fail_at(operand.offset, "`-` has a bool here; expected an int or a float");
      return checked(Expression::make(Operation::negate, {operand.expression}), place, place);
    }
    if (skip("!")) {
      const Parsed operand = parse_unary();
      if (operand.expression.type() != ValueType::boolean)
        fail_at(operand.offset, "`!` has " + typed(operand.expression) + " here; expected a bool");
      return checked(Expression::make(Operation::logical_not, {operand.expression}), place, place);
    }
    if (skip("+")) fail_at(place, "`+` has no left side; expected an operand");
    return parse_primary();
  }

  Parsed parse_primary() {
    const Token token = token_;
    if (token.kind == Token::Kind::integer || token.kind == Token::Kind::number) {
      advance();
      return {token.kind == Token::Kind::integer ? parse_integer(token) : parse_number(token), token.offset};
    }
    if (token.kind == Token::Kind::word) return parse_word();
    if (!skip("(")) fail_expected("an operand: a name, a number or `(`");
    const Parsed inner = parse_choose();
    expect(")");
    return {inner.expression, token.offset};
  }

  static Expression parse_integer(const Token& token) {
    int64_t value = 0;
    const char* end = token.text.data() + token.text.size();
    if (std::from_chars(token.text.data(), end, value).ec != std::errc())
      fail_at(token.offset, "this int is beyond 2^63; ints have 64 bits");
    return Expression::integer(value);
  }

  static Expression parse_number(const Token& token) {
    double value = 0;
    const char* end = token.text.data() + token.text.size();
    const bool in_range = std::from_chars(token.text.data(), end, value).ec == std::errc();
    const bool zero =
        token.text.substr(0, token.text.find_first_of("eE")).find_first_of("123456789") == token.text.npos;
    const double rounded = static_cast<double>(static_cast<float>(value));
    if (!zero && (!in_range || std::isinf(rounded) || rounded == 0))
      fail_at(token.offset, "this float is outside of fp32; expected 1e-45 to 3.4e38, or inf");
    return Expression::number(zero ? 0 : value);
  }

  Parsed parse_word() {
    const Token token = token_;
    advance();
    const std::string name(token.text);
    const bool call = at("("), indexed = at("[");
    for (const auto& [word, operation] : function_words)
      if (word == name) {
        if (!call) fail("`" + name + "` is a function; expected `(`");
        return parse_call(token, operation);
      }
    if (indexed) return parse_look_up(token);
    if (call) fail_unknown(token, "function", function_names());
    if (name == "true" || name == "false") return {Expression::boolean(name == "true"), token.offset};
    if (name == "inf") return {Expression::number(INFINITY), token.offset};
    for (const auto& [word, variable] : variable_words)
      if (word == name) {
        if (mask_ && variable == ExpressionVariable::score)
          fail_at(token.offset,
                  "a mask does not see the score; expected positions, heads, scalars and tensors");
        return {Expression::variable(variable), token.offset};
      }
    if (auto scalar = declarations_.scalars.find(name); scalar != declarations_.scalars.end())
      return {Expression::scalar(name, scalar->second), token.offset};
    if (auto tensor = declarations_.tensors.find(name); tensor != declarations_.tensors.end())
      fail("`" + name + "` is a tensor, " + to_text(tensor->second) +
           "; expected an index for each dimension in [ ]");
    fail_unknown(token, "name", value_names());
  }

  Parsed parse_call(const Token& token, Operation operation) {
    const size_t expected =
        operation == Operation::min || operation == Operation::max || operation == Operation::pow ? 2 : 1;
    const std::vector<Parsed> arguments = parse_list("(", ")");
    const std::string name = "`" + std::string(token.text) + "`";
    if (arguments.size() != expected)
      fail_at(token.offset, name + " has " + std::to_string(arguments.size()) + " arguments; expected " +
                                std::to_string(expected));
    std::vector<Expression> operands;
    for (const Parsed& argument : arguments) {
      const bool number = argument.expression.type() != ValueType::boolean;
      if (!number) fail_at(argument.offset, name + " has a bool here; expected an int or a float");
      operands.push_back(argument.expression);
    }
    // Both would do nothing: float(x) of a float, floor(x) of an int.
    if (operation == Operation::to_number && operands[0].type() == ValueType::number)
      return {operands[0], token.offset};
    if (operation == Operation::floor && operands[0].type() == ValueType::integer)
      return {operands[0], token.offset};
    if (operation == Operation::to_number && operands[0].operation() == Operation::integer_literal)
      return {Expression::number(static_cast<double>(operands[0].integer_value())), token.offset};
    return checked(Expression::make(operation, std::move(operands)), token.offset, token.offset);
  }

  Parsed parse_look_up(const Token& token) {
    const std::string name(token.text);
    const auto tensor = declarations_.tensors.find(name);
    if (tensor == declarations_.tensors.end()) {
      if (declarations_.scalars.count(name))
        fail_at(token.offset,
                "`" + name + "` is a scalar; expected no index, or a declaration in `tensors:`");
      std::vector<std::string_view> names;
      for (const auto& declared : declarations_.tensors) names.push_back(declared.first);
      fail_unknown(token, "tensor", names);
    }
    const std::vector<Parsed> indices = parse_list("[", "]");
    if (indices.size() != tensor->second.dimensions.size())
      fail_at(token.offset, "`" + name + "` has " + std::to_string(indices.size()) + " indices; expected " +
                                std::to_string(tensor->second.dimensions.size()) +
                                ", as declared: " + to_text(tensor->second));
    std::vector<Expression> operands;
    for (const Parsed& index : indices) {
      if (index.expression.type() != ValueType::integer)
        fail_at(index.offset, "an index of `" + name + "` is " + typed(index.expression) +
                                  "; expected an int" +
                                  (index.expression.type() == ValueType::number ? ", such as floor(x)" : ""));
      operands.push_back(index.expression);
    }
    return checked(Expression::look_up(name, tensor->second.element, std::move(operands)), token.offset,
                   token.offset);
  }

  std::vector<Parsed> parse_list(std::string_view open, std::string_view close) {
    std::vector<Parsed> list;
    expect(open);
    if (skip(close)) return list;
    do list.push_back(parse_choose());
    while (skip(","));
    if (!skip(close)) fail_expected("`,` or `" + std::string(close) + "`");
    return list;
  }

  static std::vector<std::string_view> function_names() {
    std::vector<std::string_view> names;
    for (const auto& function : function_words) names.push_back(function.first);
    return names;
  }

  std::vector<std::string_view> value_names() const {
    std::vector<std::string_view> names;
    for (const auto& [word, variable] : variable_words)
      if (!mask_ || variable != ExpressionVariable::score) names.push_back(word);
    for (const auto& declared : declarations_.scalars) names.push_back(declared.first);
    for (const auto& declared : declarations_.tensors) names.push_back(declared.first);
    return names;
  }

  [[noreturn]] static void fail_unknown(const Token& token, const std::string& what,
                                        const std::vector<std::string_view>& names) {
    const std::string_view near = nearest(token.text, names);
    std::string message = "unknown " + what + " " + quoted_for_message(token.text);
    if (what == "function") message += "; expected one of " + joined(names);
    if (what == "tensor") message += "; expected one declared in `tensors:`";
    if (what == "name")
      message += "; expected " + joined(names) + ", or a declaration in `scalars:` or `tensors:`";
    if (!near.empty()) message += "; nearest: " + std::string(near);
    fail_at(token.offset, message);
  }

  Lexer lexer_;
  const Declarations& declarations_;
  bool mask_;
  Token token_;
  int depth_ = 0;
};

}  // namespace

Expression parse_mask(std::string_view text, const Declarations& declarations) {
  const Parsed parsed = Parser(text, declarations, true).parse();
  if (parsed.expression.type() != ValueType::boolean)
    throw ExpressionError("a mask says yes or no and this is " + typed(parsed.expression) +
                              "; expected a bool, such as `q >= kv`",
                          parsed.offset);
  return parsed.expression;
}

Expression parse_score(std::string_view text, const Declarations& declarations) {
  const Parsed parsed = Parser(text, declarations, false).parse();
  if (parsed.expression.type() == ValueType::boolean)
    throw ExpressionError(
        "a score is a number and this is a bool; expected a float, such as `score * 2.0`, or a "
        "choice such as `q >= kv ? score : -inf`",
        parsed.offset);
  if (parsed.expression.type() == ValueType::number) return parsed.expression;
  if (parsed.expression.operation() == Operation::integer_literal)
    return Expression::number(static_cast<double>(parsed.expression.integer_value()));
  return Expression::make(Operation::to_number, {parsed.expression});
}

}  // namespace tilewright
