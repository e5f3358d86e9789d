// The words of the expression language, for parser, printer and messages alike.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "codegen/expression.h"

namespace tilewright {

template <typename Meaning, size_t count>
using Words = std::array<std::pair<std::string_view, Meaning>, count>;

inline constexpr Words<ExpressionVariable, 8> variable_words = {
    {{"q", ExpressionVariable::q},
     {"kv", ExpressionVariable::kv},
     {"head", ExpressionVariable::head},
     {"kv_head", ExpressionVariable::kv_head},
     {"batch", ExpressionVariable::batch},
     {"score", ExpressionVariable::score},
     {"seqlen_q", ExpressionVariable::seqlen_q},
     {"seqlen_kv", ExpressionVariable::seqlen_kv}}};

inline constexpr Words<ElementType, 5> element_words = {{{"bool", ElementType::boolean},
                                                         {"int32", ElementType::int32},
                                                         {"float32", ElementType::float32},
                                                         {"fp16", ElementType::fp16},
                                                         {"bf16", ElementType::bf16}}};

inline constexpr Words<ScalarType, 2> scalar_words = {
    {{"int", ScalarType::integer}, {"float", ScalarType::number}}};

inline constexpr Words<Dimension::Extent, 5> extent_words = {{{"q", Dimension::Extent::q},
                                                              {"kv", Dimension::Extent::kv},
                                                              {"head", Dimension::Extent::head},
                                                              {"kv_head", Dimension::Extent::kv_head},
                                                              {"batch", Dimension::Extent::batch}}};

inline constexpr Words<Operation, 9> function_words = {{{"abs", Operation::abs},
                                                        {"min", Operation::min},
                                                        {"max", Operation::max},
                                                        {"exp", Operation::exp},
                                                        {"log", Operation::log},
                                                        {"tanh", Operation::tanh},
                                                        {"floor", Operation::floor},
                                                        {"pow", Operation::pow},
                                                        {"float", Operation::to_number}}};

/// Literals that are words.
inline constexpr std::array<std::string_view, 3> literal_words = {"true", "false", "inf"};

/// How tightly an operator binds: operators of a higher level first. As in C.
struct Operator {
  std::string_view text;
  Operation operation;
  int level;
};
inline constexpr int choose_level = 1, unary_level = 8, primary_level = 9;
inline constexpr std::array<Operator, 13> binary_operators = {{{"||", Operation::logical_or, 2},
                                                               {"&&", Operation::logical_and, 3},
                                                               {"==", Operation::equal, 4},
                                                               {"!=", Operation::not_equal, 4},
                                                               {"<=", Operation::less_equal, 5},
                                                               {">=", Operation::greater_equal, 5},
                                                               {"<", Operation::less, 5},
                                                               {">", Operation::greater, 5},
                                                               {"+", Operation::add, 6},
                                                               {"-", Operation::subtract, 6},
                                                               {"*", Operation::multiply, 7},
                                                               {"/", Operation::divide, 7},
                                                               {"%", Operation::modulo, 7}}};

}  // namespace tilewright
