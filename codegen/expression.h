// The expression language of `mask:` and `score:`: a typed tree, its parser and its canonical text.
// docs/expressions.md is the reference of the language.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/error.h"

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

/// bool, int and float of the language. An int is a 64-bit number that wraps; a float is fp32 in kernels and
/// fp64 in the interpreter.
enum class ValueType { boolean, integer, number };

/// `q` and `kv` are positions in the sequence of keys: the last query stands at the last key, so query row i
/// has q = i + seqlen_kv - seqlen_q, which is negative for the first rows when there are more queries than
/// keys. All are int but `score`, the scaled (and capped) score, a float.
enum class ExpressionVariable { q, kv, head, kv_head, batch, score, seqlen_q, seqlen_kv };

/// Type of one element of a tensor in memory. bool is one byte, int32 and bool look up as int and bool, the
/// others as float.
enum class ElementType { boolean, int32, float32, fp16, bf16 };

enum class ScalarType { integer, number };

std::string_view name_of(ValueType type);  // "bool", "int", "float"
std::string_view name_of(ExpressionVariable variable);
std::string_view name_of(ElementType type);  // "bool", "int32", "float32", "fp16", "bf16"
std::string_view name_of(ScalarType type);   // "int", "float"
ValueType value_type(ElementType type);
int size_of(ElementType type);  // bytes

/// One dimension of a tensor: as long as there are queries, keys, heads …, or a fixed number of elements.
struct Dimension {
  enum class Extent { q, kv, head, kv_head, batch, fixed };
  Extent extent = Extent::fixed;
  int64_t size = 0;  // of `fixed`: 1 to 2^30
  bool operator==(const Dimension&) const = default;
};
std::string to_text(const Dimension& dimension);  // "kv", "32"

/// Written `bf16[batch, head, q, kv]`; 1 to 4 dimensions. At launch each dimension has its full extent or 1.
struct TensorType {
  ElementType element = ElementType::float32;
  std::vector<Dimension> dimensions;
  bool operator==(const TensorType&) const = default;
};
std::string to_text(const TensorType& type);

/// The names that expressions may use beside the variables. Sorted by name: the order they were written in
/// means nothing. int scalars are 32-bit at launch, float scalars fp32.
struct Declarations {
  std::map<std::string, ScalarType> scalars;
  std::map<std::string, TensorType> tensors;
  bool operator==(const Declarations&) const = default;
};

enum class Operation {
  integer_literal,
  number_literal,
  boolean_literal,
  variable,
  scalar,
  look_up,    // of a tensor; the operands are the indices
  to_number,  // float(x)
  negate,
  logical_not,
  add,
  subtract,
  multiply,
  divide,  // of ints: rounded down, 0 if the divisor is 0
  modulo,  // of ints: a - a / b * b, 0 if the divisor is 0
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  not_equal,
  logical_and,
  logical_or,
  choose,  // condition ? then : otherwise
  abs,
  min,
  max,
  exp,
  log,
  tanh,
  floor,  // a float rounded down to an int, saturated at int32's ends; NaN gives 0
  pow     // exp2(y * log2(x)), and 1 for y = 0: NaN for a negative base
};

/// A typed expression: an immutable tree, cheap to copy. Operands have the types that the operation takes:
/// conversions are `to_number` nodes.
class Expression {
 public:
  /// Literals are not negative: of a negative value these give the negation of one.
  static Expression integer(int64_t value);
  static Expression number(double value);  // rounded to fp32; may be infinite
  static Expression boolean(bool value);
  static Expression variable(ExpressionVariable variable);
  static Expression scalar(std::string name, ScalarType type);
  static Expression look_up(std::string name, ElementType type, std::vector<Expression> indices);
  /// Operations on operands of the right types; an int beside a float becomes a float. Throws Error
  /// (internal) for types that do not fit: the parser checks them with better words.
  static Expression make(Operation operation, std::vector<Expression> operands);

  Operation operation() const;
  ValueType type() const;
  const std::vector<Expression>& operands() const;
  const Expression& operand(size_t i) const { return operands()[i]; }
  int64_t integer_value() const;              // of an integer literal
  double number_value() const;                // of a number literal
  bool boolean_value() const;                 // of a boolean literal
  ExpressionVariable which_variable() const;  // of a variable
  const std::string& name() const;            // of a scalar or look-up
  int height() const;                         // levels of the tree: 1 for a leaf
  int size() const;                           // nodes of the tree, shared ones counted as often as they occur
  bool uses(ExpressionVariable variable) const;  // anywhere in the tree
  bool is_constant() const;                      // uses no variable, scalar or tensor

  /// The same tree; NaN literals do not exist.
  bool operator==(const Expression& other) const;

 private:
  struct Node;
  explicit Expression(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

/// Adds the scalars and tensors that the expression uses.
void collect_names(const Expression& expression, std::set<std::string>& names);

/// An error in an expression's text, at a byte of it.
class ExpressionError : public Error {
 public:
  ExpressionError(std::string message, size_t offset)
      : Error(ErrorKind::spec, std::move(message)), offset_(offset) {}
  size_t offset() const { return offset_; }

 private:
  size_t offset_;
};

/// Limits that keep every later step small: bytes of the text, nodes of the tree, levels of nesting.
inline constexpr size_t max_expression_text = 4096;
inline constexpr int max_expression_size = 512;
inline constexpr int max_expression_height = 64;

/// A mask is a bool and must not use `score`; a score is a float (an int is converted). Throws
/// ExpressionError.
Expression parse_mask(std::string_view text, const Declarations& declarations);
Expression parse_score(std::string_view text, const Declarations& declarations);

/// "bf16[batch, head, q, kv]". Throws ExpressionError.
TensorType parse_tensor_type(std::string_view text);

/// What is wrong with a declared name; empty if nothing is.
std::string name_problem(std::string_view name);

/// The canonical text: one spelling, as few parentheses as possible. It parses back to an equal tree.
std::string to_text(const Expression& expression);

/// The line of `text` that holds byte `offset` and under it a caret: "  q >= kw\n       ^".
std::string caret_lines(std::string_view text, size_t offset);

}  // namespace tilewright
#pragma GCC visibility pop
