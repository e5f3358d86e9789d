#include "cli/expression_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>

#include "cli/npy.h"
#include "codegen/error.h"
#include "codegen/kernel_expressions.h"
#include "codegen/spec_rules.h"
#include "runtime/expression_arguments.h"
#include "tuner/launch_inputs.h"

namespace tilewright::cli {
namespace {

/// "NAME=REST" as a map; every name must be one of `declared`.
template <typename Declared>
std::map<std::string, std::string> named(const std::vector<std::string>& texts, const char* option,
                                         const Declared& declared) {
  std::map<std::string, std::string> values;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == text.npos || equals == 0)
      throw Error(ErrorKind::usage, fmt::format("{} {}: expected NAME=VALUE", option, text));
    const std::string name = text.substr(0, equals);
    if (!declared.count(name)) {
      std::vector<std::string_view> names;
      for (const auto& entry : declared) names.push_back(entry.first);
      throw Error(ErrorKind::usage, fmt::format("{} {}: the spec declares {}", option, name,
                                                names.empty() ? "none" : joined(names)));
    }
    values[name] = text.substr(equals + 1);
  }
  return values;
}

/// Integers must fit 32 bits.
NpyArray read_tensor(const std::string& file, const TensorType& type) {
  NpyArray array = read_npy(file);
  if (value_type(type.element) != ValueType::integer) return array;
  for (double value : array.values)
    if (!(value >= INT32_MIN && value <= INT32_MAX && value == static_cast<int32_t>(value)))
      throw Error(ErrorKind::usage,
                  fmt::format("{} holds {}; expected integers of 32 bits: {}", file, value, to_text(type)));
  return array;
}

HostTensor made_up(DataType type, const std::vector<int64_t>& shape, uint64_t seed) {
  HostTensor tensor(type, shape, Layout::bshd);
  if (type != DataType::int32 && type != DataType::boolean) {
    tensor.fill_normal(seed);
    return tensor;
  }
  const int64_t last = shape.back();
  std::vector<double> values(tensor.bytes().size() / static_cast<size_t>(size_of(type)), 1);
  for (size_t i = 0; type == DataType::int32 && i < values.size(); ++i)
    values[i] = static_cast<double>(static_cast<int64_t>(i) % last * 4 / last);
  tensor.fill(values);
  return tensor;
}

}  // namespace

void ExpressionOptions::add_to(CLI::App& app, const std::string& scalars_without,
                               const std::string& tensors_without) {
  app.add_option("--scalar", scalars,
                 "NAME=VALUE of the spec's `scalars`" + scalars_without + "; may be repeated");
  app.add_option("--tensor", tensors,
                 "NAME=FILE.npy of the spec's `tensors`" + tensors_without + "; may be repeated");
}

MaskInputs known_inputs(const AttentionSpec& spec, const LaunchShape& shape,
                        const ExpressionOptions& options) {
  MaskInputs inputs{.scalars = scalar_values(spec, options.scalars)};
  const Declarations declared = launch_declarations(spec);
  for (const auto& [name, file] : named(options.tensors, "--tensor", declared.tensors)) {
    const TensorType type = declared.tensors.at(name);
    const auto array = std::make_shared<const NpyArray>(read_tensor(file, type));
    std::vector<int64_t> expected;
    for (const Dimension& dimension : type.dimensions) expected.push_back(extent_of(spec, shape, dimension));
    bool fits = array->shape.size() == expected.size();
    for (size_t i = 0; fits && i < expected.size(); ++i)
      fits = array->shape[i] == expected[i] || array->shape[i] == 1;
    if (!fits)
      throw Error(ErrorKind::usage,
                  fmt::format("{} has shape {}; expected {}, or 1 in places, for {}: {}", file,
                              shape_text(array->shape), shape_text(expected), name, to_text(type)));
    if (array->values.empty()) continue;
    inputs.tensors[name] = [array, type, shape](const std::vector<int64_t>& indices) {
      int64_t offset = 0;
      for (size_t i = 0; i < indices.size(); ++i)
        offset = offset * array->shape[i] + clamped_index(type.dimensions[i], array->shape[i], indices[i],
                                                          shape.seqlen_q, shape.seqlen_kv);
      const double value = array->values[static_cast<size_t>(offset)];
      const ValueType kind = value_type(type.element);
      return kind == ValueType::boolean   ? Value::of(value != 0)
             : kind == ValueType::integer ? Value::of(static_cast<int64_t>(value))
                                          : Value::of(static_cast<double>(static_cast<float>(value)));
    };
  }
  return inputs;
}

std::map<std::string, double> scalar_values(const AttentionSpec& spec,
                                            const std::vector<std::string>& texts) {
  std::map<std::string, double> values;
  for (const auto& [name, text] : named(texts, "--scalar", spec.declarations.scalars)) {
    const char *begin = text.data(), *end = begin + text.size();
    if (const auto read = std::from_chars(begin, end, values[name]);
        read.ec != std::errc() || read.ptr != end)
      throw Error(ErrorKind::usage, fmt::format("--scalar {}={}: expected a number", name, text));
  }
  return values;
}

ExpressionInputs::ExpressionInputs(Runtime& runtime, const AttentionSpec& spec, const LaunchShape& shape,
                                   const ExpressionOptions& options, uint64_t seed) {
  scalars_ = scalar_values(spec, options.scalars);
  for (const auto& entry : spec.declarations.scalars)
    if (!scalars_.count(entry.first))
      throw Error(ErrorKind::usage, fmt::format("scalar {} has no value; give it with --scalar {}=VALUE",
                                                entry.first, entry.first));
  const Declarations declared = launch_declarations(spec);
  const auto files = named(options.tensors, "--tensor", declared.tensors);
  for (const auto& [name, type] : declared.tensors) {
    std::vector<int64_t> extents;
    for (const Dimension& dimension : type.dimensions) extents.push_back(extent_of(spec, shape, dimension));
    names_.push_back(name);
    if (const auto file = files.find(name); file != files.end()) {
      const NpyArray array = read_tensor(file->second, type);
      host_.emplace_back(data_type(type.element), array.shape, Layout::bshd).fill(array.values);
    } else {
      host_.push_back(made_up(data_type(type.element), extents, seed++));
    }
    device_.emplace_back(runtime, host_.back());
  }
}

void ExpressionInputs::give(ForwardArguments& on_device, ForwardArguments& on_host) {
  on_device.scalars = on_host.scalars = scalars_;
  for (size_t i = 0; i < names_.size(); ++i) {
    on_device.tensors[names_[i]] = device_[i].view();
    on_host.tensors[names_[i]] = host_[i].view();
  }
}

}  // namespace tilewright::cli
