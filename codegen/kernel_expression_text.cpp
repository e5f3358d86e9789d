// The declarations by which a kernel evaluates a spec's expressions.
#include <cmath>
#include <set>
#include <vector>

#include "codegen/expression_cuda.h"
#include "codegen/kernel_expressions.h"
#include "codegen/look_up_tables.h"

namespace tilewright {
namespace {

constexpr const char* function_start = "__device__ __forceinline__ ";

std::string type_text(ScalarType type) {
  return type == ScalarType::integer ? "int" : "float";
}

std::string type_text(ValueType type) {
  return type == ValueType::boolean ? "bool" : type == ValueType::integer ? "int" : "float";
}

std::string arguments_struct(const Declarations& declarations, const std::vector<Expression>& tables) {
  std::string text = "struct ExpressionArguments {\n";
  for (const auto& [name, type] : declarations.tensors)
    text += "  ExpressionTensor tensor_" + name + ";  // " + to_text(type) + "\n";
  for (size_t i = 0; i < tables.size(); ++i)
    text += "  ExpressionTable table_" + std::to_string(i) + ";  // " + to_text(tables[i]) + "\n";
  for (const auto& [name, type] : declarations.scalars)
    text += "  " + type_text(type) + " scalar_" + name + ";\n";
  return text + "};\n\n";
}

std::string scope_struct(const Declarations& declarations, bool alibi) {
  std::string text =
      "/// What expressions see of a tile beside positions.\n"
      "struct Scope {\n"
      "  const ExpressionArguments& arguments;\n"
      "  int head, kv_head, batch, seqlen_q, seqlen_kv;\n";
  std::string scalars;
  for (const auto& [name, type] : declarations.scalars) {
    text += "  " + type_text(type) + " scalar_" + name + ";\n";
    scalars += ", e.scalar_" + name;
  }
  if (alibi) {
    text += "  float scalar_" + std::string(alibi_slope_name) + ";\n";
    scalars += ", alibi_slope(head, e.scalar_" + std::string(alibi_scalar) + ")";
  }
  return text + "};\n\n" + function_start +
         "Scope scope_of(const Sequence& sequence, const ExpressionArguments& e, int batch, int head) {\n"
         "  return {e, head, head / gqa_ratio, batch, sequence.queries, sequence.keys" +
         scalars + "};\n}\n\n";
}

std::string index_names(size_t count, const std::string& type) {
  std::string text;
  for (size_t i = 0; i < count; ++i)
    text += ", " + type + (type.empty() ? "" : " ") + "i" + std::to_string(i);
  return text;
}

/// tensor_NAME: the element at indices that may lie outside.
std::string look_up_function(const std::string& name, const TensorType& type) {
  std::string text = "/// " + to_text(type) + "\n" + function_start + type_text(value_type(type.element)) +
                     " tensor_" + name + "(const Scope& scope" + index_names(type.dimensions.size(), "int") +
                     ") {\n  const ExpressionTensor& tensor = scope.arguments.tensor_" + name +
                     ";\n  const char* element = (const char*)tensor.data;\n";
  for (size_t i = 0; i < type.dimensions.size(); ++i) {
    const bool query = type.dimensions[i].extent == Dimension::Extent::q;
    text += "  element += element_offset(tensor, " + std::to_string(i) + ", i" + std::to_string(i) +
            (query ? " - (scope.seqlen_kv - scope.seqlen_q)" : "") + ");\n";
  }
  return text + "  return load_" + std::string(name_of(type.element)) + "(element);\n}\n\n";
}

/// tensor_NAME_range: what the elements at ranges of indices may be. Of int32 the lanes of a warp look for
/// the smallest and the largest together where all ask for the same few, such as those of a tile's queries;
/// of others anything.
std::string look_up_range_function(const std::string& name, const TensorType& type) {
  const ValueType value = value_type(type.element);
  const char* result = value == ValueType::boolean   ? "Truth"
                       : value == ValueType::integer ? "IntRange"
                                                     : "FloatRange";
  std::string head = "/// " + to_text(type) + "\n" + function_start + result + " tensor_" + name +
                     "_range(const Scope& scope";
  if (value != ValueType::integer) {
    for (size_t i = 0; i < type.dimensions.size(); ++i) head += ", IntRange";
    return head + ") {\n  return " + (value == ValueType::boolean ? "{true, true}" : "any_float()") +
           ";\n}\n\n";
  }
  const size_t last = type.dimensions.size() - 1;  // the others must be single indices
  std::string known = "are_shared(i" + std::to_string(last) + ")", indices;
  for (size_t i = 0; i < last; ++i) {
    const std::string index = "i" + std::to_string(i);
    known = "is_shared(" + index + ") && " + known;
    indices += ", (int)" + index + ".low";
  }
  const std::string range = "i" + std::to_string(last);
  return head + index_names(type.dimensions.size(), "IntRange") + ") {\n  if (warp_any(!(" + known +
         "))) return any_int32();\n  IntRange found = {2147483647, -2147483647 - 1};\n#pragma unroll 1\n  "
         "for (long long i = " +
         range + ".low + thread_index() % 32; i <= " + range +
         ".high; i += 32) {\n    const int element = tensor_" + name + "(scope" + indices +
         ", (int)i);\n    found = {smaller_of<long long>(found.low, element), larger_of<long "
         "long>(found.high, element)};\n"
         "  }\n  return range_of_warp(found);\n}\n\n";
}

/// The same with divisions by what is the same all over a tile as products: its reciprocal is computed once.
/// At most an ulp further from the quotient.
Expression without_divisions(const Expression& e, const Declarations& declarations) {
  std::vector<Expression> operands;
  for (const Expression& operand : e.operands()) operands.push_back(without_divisions(operand, declarations));
  if (operands.empty()) return e;
  if (e.operation() == Operation::look_up)
    return Expression::look_up(e.name(), declarations.tensors.at(e.name()).element, operands);
  const bool number = e.type() == ValueType::number && e.operation() == Operation::divide;
  if (!number || !is_uniform(operands[1]) || is_uniform(operands[0]))
    return Expression::make(e.operation(), operands);
  const bool literal = operands[1].operation() == Operation::number_literal;
  const double value = literal ? 1 / operands[1].number_value() : 1;
  if (std::fabs(value) < 1e-37 || std::fabs(value) > 1e37) return Expression::make(e.operation(), operands);
  const Expression reciprocal =
      literal ? Expression::number(value)
              : Expression::make(Operation::divide, {Expression::number(1), operands[1]});
  return Expression::make(Operation::multiply, {operands[0], reciprocal});
}

/// As changed_score, with the derivative by the scaled product.
std::string differentiated_score(const KernelExpressions& expressions) {
  std::string text;
  if (expressions.slope)
    text +=
        score_function(without_divisions(*expressions.slope, expressions.declarations), "slope_of") + "\n";
  const std::string places = "(scope, at, row, column, score)";
  const std::string slope = expressions.slope ? "slope_of" + places : "";
  const std::string cap = expressions.softcap != 0 ? "cap_slope(score)" : "";
  return text + "/// The slope is the derivative by the scaled product.\n" + function_start +
         "float differentiated_score(const Scope& scope, float product, float scale, const Positions& at, "
         "int row,\n"
         "                           int column, float& slope) {\n"
         "  const float score = " +
         (expressions.softcap != 0 ? "capped_score(product, scale)" : "product * scale") + ";\n  slope = " +
         (slope.empty() && cap.empty() ? "1.0f" : slope + (slope.empty() || cap.empty() ? "" : " * ") + cap) +
         ";\n  return " + (expressions.score ? "score_of" + places : "score") + ";\n}\n";
}

}  // namespace

std::string expression_declarations(const AttentionSpec& spec, const KernelExpressions& expressions) {
  const auto& [window, mask, softcap, score, declarations, walk, has_limits, walks_by_warp, last_rows_first,
               sees_part, slope, tables] = expressions;
  const bool backward = spec.pass == Pass::backward;
  const std::vector<Expression> in_memory = backward ? std::vector<Expression>() : tables;
  std::string text = arguments_struct(declarations, in_memory) + scope_struct(declarations, spec.alibi);
  for (const auto& [name, type] : declarations.tensors)
    if (!spec.bias_gradient || name != bias_gradient_tensor) text += look_up_function(name, type);
  if (mask) {
    for (size_t i = 0; i < in_memory.size(); ++i) text += table_functions(in_memory[i], i);
    if (backward) text += key_look_ups(tables);
    for (const std::string& name : range_look_ups(*mask, tables))
      text += look_up_range_function(name, declarations.tensors.at(name));
    text += (has_limits ? row_limits_function(*mask) : mask_function(*mask)) + "\n" +
            key_range_function(*mask, in_memory) + "\n";
    if (walk == KeyWalkKind::scan || backward) text += tile_state_function(*mask, tables, backward) + "\n";
    if (!has_limits)
      text += std::string(function_start) +
              "bool is_visible(const Scope& scope, const Positions& at, int row, int column) {\n"
              "  return mask_of(scope, at.q + row, at.kv + column);\n}\n\n";
  }
  if (score)
    text +=
        score_function(without_divisions(*score, declarations)) + "\n" + function_start +
        "float changed_score(const Scope& scope, float product, float scale, const Positions& at, int row,\n"
        "                    int column) {\n"
        "  return score_of(scope, at, row, column, " +
        (expressions.softcap != 0 ? "capped_score(product, scale)" : "product * scale") + ");\n}\n";
  else if (expressions.softcap != 0)
    text += std::string(function_start) +
            "float changed_score(const Scope&, float product, float scale, const Positions&, int, int) {\n"
            "  return capped_score(product, scale);\n}\n";
  if (backward) text += "\n" + differentiated_score(expressions);
  return text;
}

}  // namespace tilewright
