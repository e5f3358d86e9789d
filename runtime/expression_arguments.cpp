#include "runtime/expression_arguments.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codegen/expression_derivative.h"
#include "codegen/expression_ranges.h"
#include "codegen/nearest.h"
#include "codegen/spec_rules.h"
#include "runtime/packed.h"
#include "runtime/reference.h"

namespace tilewright {
namespace {

constexpr int batch = 0, sequence = 1, head = 2;  // dimensions of q and k

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::usage, message);
}

std::string text(int64_t value) {
  return std::to_string(value);
}

/// -1: any. Layout packed: dimensions along q and kv count within a sequence, whose length the host does not
/// know.
int64_t extent_of(const AttentionSpec& spec, const ForwardArguments& arguments, const Dimension& dimension) {
  const auto& q = arguments.q.shape;
  const bool packed = spec.layout == Layout::packed;
  switch (dimension.extent) {
    case Dimension::Extent::q:
      return packed ? -1 : q[sequence];
    case Dimension::Extent::kv:
      return packed ? -1 : arguments.k.shape[sequence];
    case Dimension::Extent::head:
      return q[head];
    case Dimension::Extent::kv_head:
      return q[head] / spec.gqa_ratio;
    case Dimension::Extent::batch:
      return packed ? sequence_count(arguments) : q[batch];
    case Dimension::Extent::fixed:
      break;
  }
  return dimension.size;
}

/// In elements.
int64_t stride_of(const TensorView& view, size_t dimension) {
  if (view.shape[dimension] <= 1) return 0;
  if (!view.strides.empty()) return view.strides[dimension];
  int64_t stride = 1;
  for (size_t i = dimension + 1; i < view.shape.size(); ++i) stride *= std::max<int64_t>(view.shape[i], 1);
  return stride;
}

void check_tensor(const AttentionSpec& spec, const ForwardArguments& arguments, const std::string& name,
                  const TensorType& type, const TensorView& view) {
  const std::string title = "tensor " + name;
  const size_t rank = type.dimensions.size();
  if (view.shape.size() != rank)
    refuse(title + " has " + text(view.shape.size()) + " dimensions, expected " + text(rank) + ": " +
           to_text(type));
  if (!view.strides.empty() && view.strides.size() != rank)
    refuse(title + " has " + text(view.strides.size()) + " strides, expected " + text(rank) +
           " or none (contiguous)");
  const DataType expected = data_type(type.element);
  if (view.dtype != expected)
    refuse(title + " is " + std::string(name_of(view.dtype)) + ", expected " +
           std::string(name_of(expected)) + ": " + to_text(type));
  __int128 reach = 0;
  bool empty = false;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t extent = extent_of(spec, arguments, type.dimensions[i]);
    if (extent >= 0 && view.shape[i] != extent && view.shape[i] != 1)
      refuse(title + ": " + to_text(type.dimensions[i]) + " dimension is " + text(view.shape[i]) +
             ", expected " + text(extent) + (extent == 1 ? "" : " or 1"));
    if (extent < 0 && view.shape[i] < 1)
      refuse(title + ": " + to_text(type.dimensions[i]) + " dimension is " + text(view.shape[i]) +
             ", expected 1 or more");
    empty |= view.shape[i] == 0;
    const __int128 stride = stride_of(view, i);
    reach += (view.shape[i] - 1) * (stride < 0 ? -stride : stride);
  }
  if (reach >= (int64_t{1} << 59)) refuse(title + ": its strides reach beyond 2^59 elements");
  if (empty) return;
  if (!view.data) refuse(title + ": data is null");
  if (reinterpret_cast<uintptr_t>(view.data) % size_of(type.element) != 0)
    refuse(title + ": data is not at a multiple of its " + text(size_of(type.element)) + "-byte elements");
}

void check_scalar(const std::string& name, ScalarType type, double value) {
  const bool integer = std::floor(value) == value && value >= INT32_MIN && value <= INT32_MAX;
  if (type == ScalarType::integer && !integer)
    refuse("scalar " + name + " is " + shortest_decimal(value) + ", expected an integer of 32 bits");
}

/// Names that are given and not declared, or declared and not given.
template <typename Given, typename Declared>
void check_names(const char* kind, const Given& given, const Declared& declared, const char* implied) {
  for (const auto& entry : declared)
    if (entry.first != implied && !given.count(entry.first))
      refuse(std::string(kind) + " " + entry.first + " is missing: the spec declares it");
  for (const auto& entry : given) {
    if (entry.first != implied && declared.count(entry.first)) continue;
    std::vector<std::string_view> names;
    for (const auto& known : declared)
      if (known.first != implied) names.push_back(known.first);
    const std::string_view near = nearest(entry.first, names);
    refuse(std::string(kind) + " " + entry.first + " was given, but the spec declares " +
           (names.empty() ? "none" : joined(names)) +
           (near.empty() ? "" : "; nearest: " + std::string(near)));
  }
}

}  // namespace

DataType data_type(ElementType type) {
  switch (type) {
    case ElementType::boolean:
      return DataType::boolean;
    case ElementType::int32:
      return DataType::int32;
    case ElementType::float32:
      return DataType::fp32;
    case ElementType::fp16:
      return DataType::fp16;
    case ElementType::bf16:
      break;
  }
  return DataType::bf16;
}

bool has_expressions(const AttentionSpec& spec) {
  return spec.mask.kind == Mask::Kind::expression || spec.score || spec.alibi || spec.bias;
}

void check_expression_arguments(const AttentionSpec& spec, const ForwardArguments& arguments) {
  if (!has_expressions(spec) && arguments.scalars.empty() && arguments.tensors.empty()) return;
  const Declarations declared = launch_declarations(spec);
  check_names("scalar", arguments.scalars, declared.scalars, spec.alibi ? alibi_scalar : "");
  check_names("tensor", arguments.tensors, declared.tensors, "");
  for (const TensorView* view : {&arguments.q, &arguments.k})
    if (view->shape[sequence] > max_expression_seqlen)
      refuse("a sequence of " + text(view->shape[sequence]) +
             " is too long for a spec with expressions; expected at most " + text(max_expression_seqlen));
  for (const auto& [name, value] : arguments.scalars) check_scalar(name, declared.scalars.at(name), value);
  for (const auto& [name, view] : arguments.tensors)
    check_tensor(spec, arguments, name, declared.tensors.at(name), view);
}

void check_bias_gradient(const AttentionSpec& spec, const ForwardArguments& arguments,
                         const TensorView& d_bias) {
  const TensorType type = kernel_declarations(spec).tensors.at(bias_gradient_tensor);
  check_tensor(spec, arguments, bias_gradient_tensor, type, d_bias);
  const TensorView& bias = arguments.tensors.at(bias_tensor);
  int64_t contiguous = 1;
  for (size_t i = type.dimensions.size(); i-- > 0;) {
    const std::string dimension = std::string("tensor d_bias: ") + to_text(type.dimensions[i]) + " dimension";
    if (d_bias.shape[i] != bias.shape[i])
      refuse(dimension + " is " + text(d_bias.shape[i]) + ", expected that of bias, " + text(bias.shape[i]));
    if (!d_bias.strides.empty() && d_bias.shape[i] > 1 && d_bias.strides[i] != contiguous)
      refuse(dimension + " has a stride of " + text(d_bias.strides[i]) + ", expected " + text(contiguous) +
             " (d_bias must be contiguous)");
    contiguous *= d_bias.shape[i];
    const int64_t extent = extent_of(spec, arguments, type.dimensions[i]);
    if (spec.deterministic && d_bias.shape[i] == 1 && extent > 1)
      refuse(dimension + " is 1 of " + text(extent) +
             ": its sums have no order, which `deterministic: true` asks for; give bias and d_bias in full "
             "and sum "
             "up d_bias, or leave `deterministic` out");
  }
}

void pack_expressions(const AttentionSpec& spec, const ForwardArguments& arguments,
                      std::span<const ExpressionTable> tables, PackedExpressions& packed) {
  const Declarations declared = kernel_declarations(spec);
  unsigned char* to = packed.bytes;
  for (const auto& [name, type] : declared.tensors) {
    const TensorView& view = arguments.tensors.at(name);
    ExpressionTensor tensor{view.data, {}, {}};
    for (size_t i = 0; i < type.dimensions.size(); ++i) {
      tensor.strides[i] = stride_of(view, i) * size_of(type.element);
      tensor.last[i] = static_cast<int>(std::max<int64_t>(view.shape[i] - 1, 0));
    }
    std::memcpy(to, &tensor, sizeof tensor);
    to += sizeof tensor;
  }
  std::memcpy(to, tables.data(), tables.size_bytes());
  to += tables.size_bytes();
  for (const auto& [name, type] : declared.scalars) {
    const double value = spec.alibi && name == alibi_scalar
                             ? static_cast<double>(alibi_heads(arguments.q.shape[head]))
                             : arguments.scalars.at(name);
    const auto integer = type == ScalarType::integer ? static_cast<int32_t>(value) : 0;
    const auto number = static_cast<float>(value);
    std::memcpy(to, type == ScalarType::integer ? static_cast<const void*>(&integer) : &number, 4);
    to += 4;
  }
}

MemorySpan memory_span(const TensorView& view) {
  int64_t low = 0, high = 1;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] == 0) return {static_cast<unsigned char*>(view.data), 0};
    const int64_t reach = (view.shape[i] - 1) * stride_of(view, i);
    (reach < 0 ? low : high) += reach;
  }
  const int64_t size = size_of(view.dtype);
  return {static_cast<unsigned char*>(view.data) + low * size, static_cast<size_t>((high - low) * size)};
}

ExpressionValues::ExpressionValues(const AttentionSpec& spec, const ForwardArguments& arguments, int64_t b,
                                   int64_t h)
    : arguments_(arguments),
      mask_(spec.mask.expression),
      score_(score_expression(spec)),
      declarations_(launch_declarations(spec)) {
  if (score_) slope_ = derivative_by_score(*score_);
  for (const auto& [name, type] : declarations_.scalars) {
    const double value = spec.alibi && name == alibi_scalar
                             ? static_cast<double>(alibi_heads(arguments.q.shape[head]))
                             : arguments.scalars.at(name);
    scalars_[name] = type == ScalarType::integer ? Value::of(static_cast<int64_t>(value))
                                                 : Value::of(static_cast<double>(static_cast<float>(value)));
  }
  if (spec.alibi) scalars_[alibi_slope_name] = Value::of(alibi_slope(h, arguments.q.shape[head]));
  environment_.head = h;
  environment_.kv_head = h / spec.gqa_ratio;
  environment_.batch = b;
  environment_.seqlen_q = arguments.q.shape[sequence];
  environment_.seqlen_kv = arguments.k.shape[sequence];
  environment_.scalars = &scalars_;
  environment_.look_up = [this](const std::string& name, const std::vector<int64_t>& indices) {
    return look_up(name, indices);
  };
}

bool ExpressionValues::is_visible(int64_t row, int64_t key) {
  environment_.q = row + environment_.seqlen_kv - environment_.seqlen_q;
  environment_.kv = key;
  return evaluate(*mask_, environment_).integer != 0;
}

double ExpressionValues::score(int64_t row, int64_t key, double score) {
  environment_.q = row + environment_.seqlen_kv - environment_.seqlen_q;
  environment_.kv = key;
  environment_.score = score;
  return evaluate(*score_, environment_).number;
}

double ExpressionValues::slope(int64_t row, int64_t key, double score) {
  if (!slope_) return 1;
  environment_.q = row + environment_.seqlen_kv - environment_.seqlen_q;
  environment_.kv = key;
  environment_.score = score;
  return evaluate(*slope_, environment_).number;
}

Value ExpressionValues::look_up(const std::string& name, const std::vector<int64_t>& indices) const {
  const TensorType& type = declarations_.tensors.at(name);
  const TensorView& view = arguments_.tensors.at(name);
  int64_t offset = 0;
  for (size_t i = 0; i < indices.size(); ++i)
    offset += clamped_index(type.dimensions[i], view.shape[i], indices[i], environment_.seqlen_q,
                            environment_.seqlen_kv) *
              stride_of(view, i);
  const double value = load_element(view.data, view.dtype, offset);
  switch (value_type(type.element)) {
    case ValueType::boolean:
      return Value::of(value != 0);
    case ValueType::integer:
      return Value::of(static_cast<int64_t>(value));
    case ValueType::number:
      break;
  }
  return Value::of(value);
}

}  // namespace tilewright
