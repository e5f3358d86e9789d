// The scalars and tensors that a launch gives to a spec's expressions: checked, and as a kernel takes them.
#pragma once

#include <cstddef>

#include "codegen/expression_evaluate.h"
#include "codegen/kernel_expressions.h"
#include "codegen/look_up_tables.h"
#include "runtime/forward_parameters.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// The kernel's ExpressionArguments: tensors in the order of their names, tables, then scalars in the order
/// of theirs.
struct PackedExpressions {
  static constexpr size_t most_names = 34;  // of each: what a spec may declare, alibi and bias
  alignas(8) unsigned char bytes[most_names * (sizeof(ExpressionTensor) + 4) +
                                 most_tables * sizeof(ExpressionTable)];
};

/// The element of a named tensor, as a launch gives it.
DataType data_type(ElementType type);

/// Whether the spec takes names from a launch, or evaluates anything.
bool has_expressions(const AttentionSpec& spec);

/// Throws Error(usage) that names scalar or tensor, dimension, value and what was expected.
void check_expression_arguments(const AttentionSpec& spec, const ForwardArguments& arguments);

/// Of a backward launch: fp32, of the bias's shape, contiguous; with `deterministic: true` of its full shape.
void check_bias_gradient(const AttentionSpec& spec, const ForwardArguments& arguments,
                         const TensorView& d_bias);

/// Of arguments that were checked; with `bias_gradient: true` the tensors have d_bias too.
void pack_expressions(const AttentionSpec& spec, const ForwardArguments& arguments,
                      std::span<const ExpressionTable> tables, PackedExpressions& packed);

/// The bytes that a tensor's view reaches: from its lowest to its highest element.
struct MemorySpan {
  unsigned char* begin;
  size_t bytes;
};
MemorySpan memory_span(const TensorView& view);

/// Mask and score of one head, in fp64 by the interpreter. Not for several threads at once.
class ExpressionValues {
 public:
  /// All must outlive it. The mask is the spec's own expression, if it has one, whatever a kernel makes of
  /// it.
  ExpressionValues(const AttentionSpec& spec, const ForwardArguments& arguments, int64_t batch, int64_t head);
  ExpressionValues(const ExpressionValues&) = delete;
  ExpressionValues& operator=(const ExpressionValues&) = delete;

  bool has_mask() const { return mask_.has_value(); }
  bool has_score() const { return score_.has_value(); }
  bool is_visible(int64_t row, int64_t key);
  double score(int64_t row, int64_t key, double score);
  /// The derivative by the score.
  double slope(int64_t row, int64_t key, double score);

 private:
  Value look_up(const std::string& name, const std::vector<int64_t>& indices) const;

  const ForwardArguments& arguments_;
  std::optional<Expression> mask_;
  std::optional<Expression> score_, slope_;
  Declarations declarations_;
  std::map<std::string, Value> scalars_;
  Environment environment_;
};

}  // namespace tilewright
