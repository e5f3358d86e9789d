// The canonical text of expressions.
#include <charconv>

#include "codegen/expression.h"
#include "codegen/expression_words.h"

namespace tilewright {
namespace {

const Operator* operator_of(Operation operation) {
  for (const Operator& known : binary_operators)
    if (known.operation == operation) return &known;
  return nullptr;
}

int level_of(const Expression& expression) {
  const Operation operation = expression.operation();
  if (const Operator* known = operator_of(operation)) return known->level;
  if (operation == Operation::choose) return choose_level;
  return operation == Operation::negate || operation == Operation::logical_not ? unary_level : primary_level;
}

/// The shortest decimal that reads back as the same fp32, and that reads as a float.
std::string number_text(double value) {
  if (value > 3.5e38) return "inf";
  char buffer[40];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value)).ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

void print(const Expression& expression, int least_level, std::string& text);

void print_list(const Expression& expression, std::string_view name, char open, char close,
                std::string& text) {
  text += name;
  text += open;
  for (size_t i = 0; i < expression.operands().size(); ++i) {
    if (i > 0) text += ", ";
    print(expression.operand(i), choose_level, text);
  }
  text += close;
}

void print_unparenthesised(const Expression& expression, std::string& text) {
  const Operation operation = expression.operation();
  if (const Operator* known = operator_of(operation)) {
    print(expression.operand(0), known->level, text);  // operators of one level group from the left
    text += " " + std::string(known->text) + " ";
    print(expression.operand(1), known->level + 1, text);
    return;
  }
  switch (operation) {
    case Operation::integer_literal:
      text += std::to_string(expression.integer_value());
      return;
    case Operation::number_literal:
      text += number_text(expression.number_value());
      return;
    case Operation::boolean_literal:
      text += expression.boolean_value() ? "true" : "false";
      return;
    case Operation::variable:
      text += name_of(expression.which_variable());
      return;
    case Operation::scalar:
      text += expression.name();
      return;
    case Operation::look_up:
      return print_list(expression, expression.name(), '[', ']', text);
    case Operation::negate:
    case Operation::logical_not:
      text += operation == Operation::negate ? "-" : "!";
      return print(expression.operand(0), unary_level, text);
    case Operation::choose:
      print(expression.operand(0), choose_level + 1, text);
      text += " ? ";
      print(expression.operand(1), choose_level, text);
      text += " : ";
      return print(expression.operand(2), choose_level, text);
    default:
      for (const auto& [word, function] : function_words)
        if (function == operation) return print_list(expression, word, '(', ')', text);
  }
}

void print(const Expression& expression, int least_level, std::string& text) {
  const bool parentheses = level_of(expression) < least_level;
  if (parentheses) text += "(";
  print_unparenthesised(expression, text);
  if (parentheses) text += ")";
}

}  // namespace

std::string to_text(const Expression& expression) {
  std::string text;
  print(expression, choose_level, text);
  return text;
}

}  // namespace tilewright
