#include "codegen/expression.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "codegen/expression_words.h"

namespace tilewright {

struct Expression::Node {
  Operation operation;
  ValueType type;
  std::vector<Expression> operands;
  int64_t integer = 0;
  double number = 0;
  ExpressionVariable variable = ExpressionVariable::q;
  std::string name;
  int height = 1;
  int size = 1;
  unsigned variables = 0;  // a bit each
  bool constant = true;
};

namespace {

template <typename Word>
std::string_view word_for(Word value, const auto& table) {
  for (const auto& [word, meaning] : table)
    if (meaning == value) return word;
  return "";
}

bool takes_numbers(Operation operation) {
  return operation == Operation::exp || operation == Operation::log || operation == Operation::tanh ||
         operation == Operation::floor || operation == Operation::pow;
}

// The type of the operation's value, given its operands' common type.
ValueType result_type(Operation operation, ValueType operands) {
  switch (operation) {
    case Operation::less:
    case Operation::less_equal:
    case Operation::greater:
    case Operation::greater_equal:
    case Operation::equal:
    case Operation::not_equal:
      return ValueType::boolean;
    case Operation::floor:
      return ValueType::integer;
    case Operation::to_number:
      return ValueType::number;
    default:
      return operands;
  }
}

bool accepts(Operation operation, ValueType operands) {
  switch (operation) {
    case Operation::logical_not:
    case Operation::logical_and:
    case Operation::logical_or:
      return operands == ValueType::boolean;
    case Operation::equal:
    case Operation::not_equal:
    case Operation::choose:
      return true;
    case Operation::modulo:
    case Operation::to_number:
      return operands == ValueType::integer;
    default:
      return takes_numbers(operation) ? operands == ValueType::number : operands != ValueType::boolean;
  }
}

size_t operand_count(Operation operation) {
  switch (operation) {
    case Operation::to_number:
    case Operation::negate:
    case Operation::logical_not:
    case Operation::abs:
    case Operation::exp:
    case Operation::log:
    case Operation::tanh:
    case Operation::floor:
      return 1;
    case Operation::choose:
      return 3;
    default:
      return 2;
  }
}

[[noreturn]] void refuse(const char* what) {
  throw Error(ErrorKind::internal, std::string("expression: ") + what);
}

// An int becomes a float; a literal at once, so that `2 * score` and `2.0 * score` are one tree.
Expression as_number(const Expression& expression) {
  if (expression.type() == ValueType::number) return expression;
  if (expression.operation() == Operation::integer_literal)
    return Expression::number(static_cast<double>(expression.integer_value()));
  return Expression::make(Operation::to_number, {expression});
}

}  // namespace

std::string_view name_of(ValueType type) {
  return type == ValueType::boolean ? "bool" : type == ValueType::integer ? "int" : "float";
}
std::string_view name_of(ExpressionVariable variable) {
  return word_for(variable, variable_words);
}
std::string_view name_of(ElementType type) {
  return word_for(type, element_words);
}
std::string_view name_of(ScalarType type) {
  return word_for(type, scalar_words);
}

ValueType value_type(ElementType type) {
  if (type == ElementType::boolean) return ValueType::boolean;
  return type == ElementType::int32 ? ValueType::integer : ValueType::number;
}

int size_of(ElementType type) {
  if (type == ElementType::boolean) return 1;
  return type == ElementType::int32 || type == ElementType::float32 ? 4 : 2;
}

std::string to_text(const Dimension& dimension) {
  if (dimension.extent == Dimension::Extent::fixed) return std::to_string(dimension.size);
  return std::string(word_for(dimension.extent, extent_words));
}

std::string to_text(const TensorType& type) {
  std::string text(name_of(type.element));
  for (size_t i = 0; i < type.dimensions.size(); ++i)
    text += (i == 0 ? "[" : ", ") + to_text(type.dimensions[i]);
  return text + "]";
}

Expression Expression::integer(int64_t value) {
  if (value < 0 && value != INT64_MIN) return make(Operation::negate, {integer(-value)});
  Node node{Operation::integer_literal, ValueType::integer};
  node.integer = value;
  return Expression(std::make_shared<const Node>(std::move(node)));
}

Expression Expression::number(double value) {
  if (value < 0) return make(Operation::negate, {number(-value)});
  Node node{Operation::number_literal, ValueType::number};
  node.number = static_cast<double>(static_cast<float>(value));
  return Expression(std::make_shared<const Node>(std::move(node)));
}

Expression Expression::boolean(bool value) {
  Node node{Operation::boolean_literal, ValueType::boolean};
  node.integer = value;
  return Expression(std::make_shared<const Node>(std::move(node)));
}

Expression Expression::variable(ExpressionVariable variable) {
  Node node{Operation::variable,
            variable == ExpressionVariable::score ? ValueType::number : ValueType::integer};
  node.variable = variable;
  node.variables = 1u << static_cast<unsigned>(variable);
  node.constant = false;
  return Expression(std::make_shared<const Node>(std::move(node)));
}

Expression Expression::scalar(std::string name, ScalarType type) {
  Node node{Operation::scalar, type == ScalarType::integer ? ValueType::integer : ValueType::number};
  node.name = std::move(name);
  node.constant = false;
  return Expression(std::make_shared<const Node>(std::move(node)));
}

namespace {
template <typename Node>
void take_operands(Node& node, std::vector<Expression> operands, auto&& variables_of) {
  for (const Expression& operand : operands) {
    node.height = std::max(node.height, operand.height() + 1);
    node.size += operand.size();
    node.variables |= variables_of(operand);
    node.constant = node.constant && operand.is_constant();
  }
  node.operands = std::move(operands);
}
}  // namespace

Expression Expression::look_up(std::string name, ElementType type, std::vector<Expression> indices) {
  for (const Expression& index : indices)
    if (index.type() != ValueType::integer) refuse("an index that is no int");
  Node node{Operation::look_up, value_type(type)};
  node.name = std::move(name);
  take_operands(node, std::move(indices), [](const Expression& e) { return e.node_->variables; });
  node.constant = false;
  return Expression(std::make_shared<const Node>(std::move(node)));
}

Expression Expression::make(Operation operation, std::vector<Expression> operands) {
  if (operation <= Operation::look_up || operands.size() != operand_count(operation))
    refuse("not an operation with operands");
  size_t first = 0;
  if (operation == Operation::choose) {
    if (operands[0].type() != ValueType::boolean) refuse("a condition that is no bool");
    first = 1;
  }
  bool any_number = takes_numbers(operation);
  for (size_t i = first; i < operands.size(); ++i) any_number |= operands[i].type() == ValueType::number;
  for (size_t i = first; i < operands.size(); ++i)
    if (any_number && operands[i].type() == ValueType::integer) operands[i] = as_number(operands[i]);
  const ValueType type = operands.back().type();
  for (size_t i = first; i < operands.size(); ++i)
    if (operands[i].type() != type || !accepts(operation, type)) refuse("operands of the wrong types");
  Node node{operation, result_type(operation, type)};
  take_operands(node, std::move(operands), [](const Expression& e) { return e.node_->variables; });
  return Expression(std::make_shared<const Node>(std::move(node)));
}

Operation Expression::operation() const {
  return node_->operation;
}
ValueType Expression::type() const {
  return node_->type;
}
const std::vector<Expression>& Expression::operands() const {
  return node_->operands;
}
int64_t Expression::integer_value() const {
  return node_->integer;
}
double Expression::number_value() const {
  return node_->number;
}
bool Expression::boolean_value() const {
  return node_->integer != 0;
}
ExpressionVariable Expression::which_variable() const {
  return node_->variable;
}
const std::string& Expression::name() const {
  return node_->name;
}
int Expression::height() const {
  return node_->height;
}
int Expression::size() const {
  return node_->size;
}
bool Expression::is_constant() const {
  return node_->constant;
}
bool Expression::uses(ExpressionVariable variable) const {
  return node_->variables >> static_cast<unsigned>(variable) & 1u;
}

bool Expression::operator==(const Expression& other) const {
  if (node_ == other.node_) return true;
  const Node &a = *node_, &b = *other.node_;
  return a.operation == b.operation && a.type == b.type && a.integer == b.integer && a.number == b.number &&
         a.variable == b.variable && a.name == b.name && a.size == b.size && a.operands == b.operands;
}

void collect_names(const Expression& expression, std::set<std::string>& names) {
  if (!expression.name().empty()) names.insert(expression.name());
  for (const Expression& operand : expression.operands()) collect_names(operand, names);
}

}  // namespace tilewright
