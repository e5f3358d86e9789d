#include "tuner/launch_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "codegen/kernel_expressions.h"
#include "runtime/arguments.h"
#include "runtime/backward_arguments.h"
#include "runtime/expression_arguments.h"
#include "runtime/reference.h"

namespace tilewright {
namespace {

/// Rows of each sequence: half more and half less in turns, so that the mean is `mean`.
std::vector<int64_t> uneven_lengths(int64_t sequences, int64_t mean) {
  std::vector<int64_t> lengths(static_cast<size_t>(sequences), mean);
  for (size_t i = 0; i + 1 < lengths.size(); i += 2) lengths[i] += mean / 2, lengths[i + 1] -= mean / 2;
  if (lengths.size() >= 4) lengths[2] += lengths[1], lengths[1] = 0;
  return lengths;
}

std::vector<int32_t> starts_of(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> starts = {0};
  for (int64_t length : lengths) starts.push_back(starts.back() + static_cast<int32_t>(length));
  return starts;
}

/// A block of standard normal elements, repeated: the power that a kernel draws, and so the clocks, depend on
/// what it computes.
void fill_normal(InputTensor& tensor, bool outliers, uint64_t seed) {
  constexpr int64_t block = 1 << 18;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const int64_t drawn = std::min(tensor.elements(), block);
  for (int64_t i = 0; i < drawn; ++i) {
    const double value = normal(random);
    store_element(tensor.bytes.data(), tensor.type, i, outliers && random() % 50 == 0 ? 20 * value : value);
  }
  const size_t period = static_cast<size_t>(drawn * size_of(tensor.type));
  for (size_t at = period; at < tensor.bytes.size(); at += period)
    std::memcpy(tensor.bytes.data() + at, tensor.bytes.data(), std::min(period, tensor.bytes.size() - at));
}

/// Values in the order of the shape [batch, rows, heads, columns], into a tensor that may lie in another.
void fill_from(const AttentionSpec& spec, InputTensor& tensor, const std::vector<double>& values) {
  std::vector<int64_t> shape = tensor.shape;
  if (spec.layout == Layout::packed) shape.insert(shape.begin(), 1);
  int64_t strides[4];
  effective_strides(spec, {tensor.bytes.data(), tensor.type, shape, {}}, strides);
  size_t index = 0;
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t i = 0; i < shape[1]; ++i)
      for (int64_t h = 0; h < shape[2]; ++h)
        for (int64_t d = 0; d < shape[3]; ++d)
          store_element(tensor.bytes.data(), tensor.type,
                        b * strides[0] + i * strides[1] + h * strides[2] + d * strides[3], values[index++]);
}

}  // namespace

std::string no_inputs_because(const AttentionSpec& spec) {
  if (spec.pass == Pass::decode) return "tuning covers the forward and the backward pass";
  if (spec.layout == Layout::paged) return "tuning covers the layouts bshd, bhsd and packed";
  return {};
}

int64_t InputTensor::elements() const {
  return static_cast<int64_t>(bytes.size()) / size_of(type);
}

BlockLists draw_block_lists(const Mask::Blocks& size, const LaunchShape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  BlockLists lists;
  const int64_t of_queries = (shape.seqlen_q + size.m - 1) / size.m,
                of_keys = (shape.seqlen_kv + size.n - 1) / size.n;
  lists.rows_of_head = of_queries + 1;
  for (int64_t head = 0; head < shape.batch * shape.heads; ++head) {
    for (int64_t row = 0; row < of_queries; ++row) {
      lists.rows.push_back(static_cast<int32_t>(lists.columns.size()));
      for (int64_t column = 0; column < of_keys; ++column)
        if (random() % 2) lists.columns.push_back(static_cast<int32_t>(column));
    }
    lists.rows.push_back(static_cast<int32_t>(lists.columns.size()));
  }
  return lists;
}

int64_t extent_of(const AttentionSpec& spec, const LaunchShape& shape, const Dimension& dimension) {
  switch (dimension.extent) {
    case Dimension::Extent::q:
      return shape.seqlen_q;
    case Dimension::Extent::kv:
      return shape.seqlen_kv;
    case Dimension::Extent::head:
      return shape.heads;
    case Dimension::Extent::kv_head:
      return shape.heads / spec.gqa_ratio;
    case Dimension::Extent::batch:
      return shape.batch;
    case Dimension::Extent::fixed:
      break;
  }
  return dimension.size;
}

LaunchInputs::LaunchInputs(const AttentionSpec& spec, const LaunchShape& shape, const Options& options)
    : options_(options), seed_(1000 * options.seed) {
  const bool packed = spec.layout == Layout::packed;
  const std::vector<int64_t> queries = uneven_lengths(shape.batch, shape.seqlen_q),
                             keys = uneven_lengths(shape.batch, shape.seqlen_kv);
  const auto rows = [&](int64_t length, int64_t heads, int64_t columns) -> std::vector<int64_t> {
    if (packed) return {shape.batch * length, heads, columns};
    return {shape.batch, length, heads, columns};
  };
  const int64_t kv_heads = shape.heads / spec.gqa_ratio;
  const auto of_q = rows(shape.seqlen_q, shape.heads, spec.head_dim.qk),
             of_k = rows(shape.seqlen_kv, kv_heads, spec.head_dim.qk),
             of_v = rows(shape.seqlen_kv, kv_heads, spec.head_dim.v),
             of_out = rows(shape.seqlen_q, shape.heads, spec.head_dim.v);
  add_normal("q", spec.dtype.q, of_q, options.outliers);
  add_normal("k", spec.dtype.kv, of_k, options.outliers);
  add_normal("v", spec.dtype.kv, of_v);
  if (packed) {
    add_integers("cu_seqlens_q", starts_of(queries), {shape.batch + 1});
    add_integers("cu_seqlens_kv", starts_of(keys), {shape.batch + 1});
  }
  if (spec.sinks) add_normal("sinks", DataType::fp32, {shape.heads});
  if (spec.mask.blocks) {
    const BlockLists lists = draw_block_lists(*spec.mask.blocks, shape, seed_);
    add_integers("block_rows", lists.rows, {shape.batch, shape.heads, lists.rows_of_head});
    add_integers("block_columns", lists.columns, {static_cast<int64_t>(lists.columns.size())});
  }
  add_declared(spec, shape);
  if (spec.softmax_scale_at_launch) softmax_scale_ = 1 / std::sqrt(spec.head_dim.qk);
  if (spec.dropout) dropout_ = Dropout{.rate = 0.1, .seed = seed_, .offset = 0};

  const bool backward = spec.pass == Pass::backward;
  std::vector<int64_t> of_lse = {shape.batch, shape.heads, shape.seqlen_q};
  if (packed) of_lse = {shape.heads, shape.batch * shape.seqlen_q};
  add("out", spec.dtype.out, of_out, !backward);
  if (backward || spec.lse) add("lse", DataType::fp32, of_lse, !backward);
  if (!backward) return;
  add_normal("d_out", spec.dtype.out, of_out);
  if (spec.lse) add_normal("d_lse", DataType::fp32, of_lse);
  add_forward_results(spec, shape);
  add("dq", spec.dtype.q, of_q, true);
  add("dk", spec.dtype.kv, of_k, true);
  add("dv", spec.dtype.kv, of_v, true);
  if (spec.sinks) add("d_sinks", DataType::fp32, {shape.heads}, true);
  if (spec.bias_gradient) {
    const std::vector<int64_t> of_bias = this->backward().tensors.at(bias_tensor).shape;
    InputTensor& d_bias = add(bias_gradient_tensor, DataType::fp32, of_bias, true);
    d_bias.added_to = true;
    std::fill(d_bias.bytes.begin(), d_bias.bytes.end(), 0);
  }
}

InputTensor& LaunchInputs::add(std::string name, DataType type, std::vector<int64_t> shape, bool written) {
  int64_t size = size_of(type);
  for (int64_t dimension : shape) size *= dimension;
  tensors.push_back({.name = std::move(name), .type = type, .shape = std::move(shape), .written = written});
  tensors.back().bytes.assign(static_cast<size_t>(size), 0xFF);  // NaN in every type
  return tensors.back();
}

void LaunchInputs::add_normal(std::string name, DataType type, std::vector<int64_t> shape, bool outliers) {
  fill_normal(add(std::move(name), type, std::move(shape)), outliers, ++seed_);
}

void LaunchInputs::add_integers(std::string name, const std::vector<int32_t>& numbers,
                                std::vector<int64_t> shape) {
  InputTensor& tensor = add(std::move(name), DataType::int32, std::move(shape));
  std::memcpy(tensor.bytes.data(), numbers.data(), tensor.bytes.size());
}

void LaunchInputs::add_declared(const AttentionSpec& spec, const LaunchShape& shape) {
  using Extent = Dimension::Extent;
  for (const auto& [name, type] : spec.declarations.scalars)
    scalars_[name] = type == ScalarType::integer ? static_cast<double>(shape.seqlen_kv / 4) : 1;
  for (const auto& [name, type] : launch_declarations(spec).tensors) {
    std::vector<int64_t> extents;
    bool by_query = false, by_key = false;
    for (const Dimension& dimension : type.dimensions) {
      extents.push_back(extent_of(spec, shape, dimension));
      by_query |= dimension.extent == Extent::q;
      by_key |= dimension.extent == Extent::kv;
    }
    // A number for each pair is broadcast over batch and heads where it would fill the memory.
    constexpr double most_pairs = 1 << 24;
    const double pairs = static_cast<double>(shape.seqlen_q) * static_cast<double>(shape.seqlen_kv);
    const bool in_full = spec.bias_gradient && spec.deterministic && name == bias_tensor;
    for (size_t i = 0; by_query && by_key && pairs > most_pairs && !in_full && i < extents.size(); ++i)
      if (type.dimensions[i].extent != Extent::q && type.dimensions[i].extent != Extent::kv) extents[i] = 1;
    InputTensor& tensor = add(name, data_type(type.element), extents);
    tensor.declared = true;
    if (tensor.type != DataType::int32 && tensor.type != DataType::boolean) {
      fill_normal(tensor, false, ++seed_);
      continue;
    }
    const int64_t last = extents.back(), part = std::max<int64_t>(1, (last + 7) / 8);
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const int64_t start = i % last / part * part;
      const double number =
          static_cast<double>(by_query || by_key ? start : std::max<int64_t>(1, shape.seqlen_kv / 4));
      store_element(tensor.bytes.data(), tensor.type, i,
                    tensor.type == DataType::boolean ? i % 7 != 3 : number);
    }
  }
}

void LaunchInputs::add_forward_results(const AttentionSpec& spec, const LaunchShape& shape) {
  InputTensor *out = nullptr, *lse = nullptr;
  for (InputTensor& tensor : tensors) {
    if (tensor.name == "out") out = &tensor;
    if (tensor.name == "lse") lse = &tensor;
  }
  if (options_.exact) {
    const ReferenceResult result = plain_forward(forward_spec(spec), forward_part(backward()));
    fill_from(spec, *out, result.out);
    for (size_t i = 0; i < result.lse.size(); ++i)
      store_element(lse->bytes.data(), lse->type, static_cast<int64_t>(i), result.lse[i]);
    return;
  }
  fill_normal(*out, false, ++seed_);
  // Of standard normal scores: probabilities below 1 throughout would do.
  const double level = std::log(static_cast<double>(std::max<int64_t>(1, shape.seqlen_kv))) + 0.5;
  for (int64_t i = 0; i < lse->elements(); ++i) store_element(lse->bytes.data(), lse->type, i, level);
}

ForwardArguments LaunchInputs::forward(const std::vector<void*>& places) {
  ForwardArguments arguments;
  const std::map<std::string, TensorView*> always = {
      {"q", &arguments.q}, {"k", &arguments.k}, {"v", &arguments.v}, {"out", &arguments.out}};
  const std::map<std::string, std::optional<TensorView>*> sometimes = {
      {"lse", &arguments.lse},
      {"sinks", &arguments.sinks},
      {"cu_seqlens_q", &arguments.cu_seqlens_q},
      {"cu_seqlens_kv", &arguments.cu_seqlens_kv},
      {"block_rows", &arguments.block_rows},
      {"block_columns", &arguments.block_columns}};
  for (size_t i = 0; i < tensors.size(); ++i) {
    InputTensor& tensor = tensors[i];
    TensorView view{places.empty() ? tensor.bytes.data() : places[i], tensor.type, tensor.shape, {}};
    if (tensor.declared)
      arguments.tensors[tensor.name] = view;
    else if (const auto found = always.find(tensor.name); found != always.end())
      *found->second = view;
    else if (const auto other = sometimes.find(tensor.name); other != sometimes.end())
      *other->second = view;
  }
  arguments.scalars = scalars_;
  arguments.softmax_scale = softmax_scale_;
  arguments.dropout = dropout_;
  return arguments;
}

BackwardArguments LaunchInputs::backward(const std::vector<void*>& places) {
  const ForwardArguments part = forward(places);
  BackwardArguments arguments{.q = part.q, .k = part.k, .v = part.v, .out = part.out, .lse = *part.lse};
  arguments.softmax_scale = softmax_scale_;
  arguments.sinks = part.sinks;
  arguments.cu_seqlens_q = part.cu_seqlens_q, arguments.cu_seqlens_kv = part.cu_seqlens_kv;
  arguments.scalars = part.scalars;
  arguments.tensors = part.tensors;
  arguments.dropout = dropout_;
  for (size_t i = 0; i < tensors.size(); ++i) {
    InputTensor& tensor = tensors[i];
    if (tensor.declared) continue;  // whatever its name
    TensorView view{places.empty() ? tensor.bytes.data() : places[i], tensor.type, tensor.shape, {}};
    if (tensor.name == "d_sinks") arguments.d_sinks = view;
    if (tensor.name == bias_gradient_tensor) arguments.d_bias = view;
    if (tensor.name == "d_out") arguments.d_out = view;
    if (tensor.name == "d_lse") arguments.d_lse = view;
    if (tensor.name == "dq") arguments.dq = view;
    if (tensor.name == "dk") arguments.dk = view;
    if (tensor.name == "dv") arguments.dv = view;
  }
  return arguments;
}

}  // namespace tilewright
