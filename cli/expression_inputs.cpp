#include "cli/expression_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

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

void ExpressionOptions::add_to(CLI::App& app) {
  app.add_option("--scalar", scalars, "NAME=VALUE of the spec's `scalars`; may be repeated");
  app.add_option("--tensor", tensors,
                 "NAME=FILE.npy of the spec's `tensors` (default: made up); may be repeated");
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
      const NpyArray array = read_npy(file->second);
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
