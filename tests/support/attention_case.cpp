#include "tests/support/attention_case.h"

#include "codegen/kernel_expressions.h"

#include "runtime/arguments.h"
#include "runtime/expression_arguments.h"

namespace tilewright::test {
namespace {

std::vector<int64_t> contiguous(const AttentionSpec& spec, const std::vector<int64_t>& shape) {
  const auto [batch, rows, heads, columns] = std::tuple(shape[0], shape[1], shape[2], shape[3]);
  (void)batch;
  if (spec.layout == Layout::bhsd) return {heads * rows * columns, columns, rows * columns, 1};
  return {rows * heads * columns, heads * columns, columns, 1};
}

double draw(const AttentionCase& attention, char tensor, int64_t column, int64_t head_dim,
            std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  const double value = normal(random);
  switch (attention.data) {
    case Data::normal:
      return value;
    case Data::outliers:
      return random() % 50 == 0 ? 20 * value : value;
    case Data::eighths:
      return static_cast<double>(static_cast<int64_t>(random() % 33) - 16) / 8;
    case Data::near_minus:
      if (tensor == 'v') return value;
      if (column != 0) return 0.1 * value;
      return tensor == 'k' ? 1.0 : -attention.level * std::sqrt(static_cast<double>(head_dim));
  }
  return value;
}

}  // namespace

GuardedTensor make_tensor(const AttentionSpec& spec, const AttentionCase& attention, char name, DataType type,
                          int64_t rows, int64_t heads, int64_t columns) {
  const std::vector<int64_t> shape = {attention.batch, rows, heads, columns};
  std::vector<int64_t> strides = attention.strides ? attention.strides(name, shape) : std::vector<int64_t>{};
  if (strides.empty()) strides = contiguous(spec, shape);
  return GuardedTensor(type, shape, strides);
}

void fill_tensor(GuardedTensor& tensor, char name, const AttentionCase& attention, std::mt19937_64& random) {
  const auto& shape = tensor.shape();
  const auto& strides = tensor.strides();
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t row = 0; row < shape[1]; ++row)
      for (int64_t head = 0; head < shape[2]; ++head)
        for (int64_t column = 0; column < shape[3]; ++column) {
          double value = draw(attention, name, column, shape[3], random);
          if (attention.adjust) value = attention.adjust(name, b, row, head, column, value);
          tensor.set(b * strides[0] + row * strides[1] + head * strides[2] + column * strides[3], value);
        }
}

namespace {

/// The caller's list of blocks, in host memory and where the kernel finds it.
class BlockLists {
 public:
  BlockLists(const AttentionCase& attention, const AttentionSpec& spec, std::mt19937_64& random) {
    if (!spec.mask.blocks) return;
    auto lists = attention.blocks;
    if (lists.empty()) lists = drawn(attention, spec, random);
    rows_shape_ = {static_cast<int64_t>(lists.size()), static_cast<int64_t>(lists[0].size()),
                   static_cast<int64_t>(lists[0][0].size()) + 1};
    for (const auto& heads : lists)
      for (const auto& rows : heads) {
        for (const auto& columns : rows) {
          rows_.push_back(static_cast<int32_t>(columns_.size()));
          columns_.insert(columns_.end(), columns.begin(), columns.end());
        }
        rows_.push_back(static_cast<int32_t>(columns_.size()));
      }
  }
  void give(Runtime* runtime, ForwardArguments& arguments) {
    if (rows_.empty()) return;
    arguments.block_rows = view(runtime, rows_, rows_shape_, buffers_[0]);
    arguments.block_columns = view(runtime, columns_, {static_cast<int64_t>(columns_.size())}, buffers_[1]);
  }

 private:
  static std::vector<std::vector<std::vector<std::vector<int32_t>>>> drawn(const AttentionCase& attention,
                                                                           const AttentionSpec& spec,
                                                                           std::mt19937_64& random) {
    const auto blocks = [](int64_t length, int block) { return (length + block - 1) / block; };
    std::vector<std::vector<std::vector<std::vector<int32_t>>>> lists(attention.batch);
    for (auto& heads : lists) {
      heads.resize(attention.heads_kv * spec.gqa_ratio);
      for (auto& rows : heads) {
        rows.resize(blocks(attention.seqlen_q, spec.mask.blocks->m));
        for (auto& columns : rows)
          for (int32_t i = 0; i < blocks(attention.seqlen_kv, spec.mask.blocks->n); ++i)
            if (random() % 2) columns.push_back(i);
      }
    }
    return lists;
  }
  static TensorView view(Runtime* runtime, std::vector<int32_t>& numbers, std::vector<int64_t> shape,
                         std::unique_ptr<DeviceBuffer>& buffer) {
    if (!runtime || runtime->is_simulator() || numbers.empty())
      return {numbers.data(), DataType::int32, std::move(shape), {}};
    buffer = std::make_unique<DeviceBuffer>(*runtime, 4 * numbers.size());
    buffer->upload(numbers.data());
    return {buffer->data(), DataType::int32, std::move(shape), {}};
  }
  std::vector<int32_t> rows_, columns_;
  std::vector<int64_t> rows_shape_;
  std::unique_ptr<DeviceBuffer> buffers_[2];
};

}  // namespace

/// A named tensor in memory of its own, on the device and on the host.
class ExpressionData::Tensor {
 public:
  Tensor(DataType type, const NamedTensor& tensor) : type_(type), shape_(tensor.shape) {
    strides_ = tensor.strides;
    if (strides_.empty()) {
      strides_.assign(shape_.size(), 1);
      for (size_t i = shape_.size(); i-- > 1;) strides_[i - 1] = strides_[i] * shape_[i];
    }
    if (std::count(shape_.begin(), shape_.end(), 0) > 0) return;
    int64_t low = 0, high = 0;
    for (size_t i = 0; i < shape_.size(); ++i)
      (strides_[i] < 0 ? low : high) += (shape_[i] - 1) * strides_[i];
    first_ = -low;
    bytes_.assign((high - low + 1) * size_of(type), 0xff);
    std::vector<int64_t> index(shape_.size(), 0);
    for (bool more = true; more;) {
      int64_t at = first_;
      for (size_t i = 0; i < index.size(); ++i) at += index[i] * strides_[i];
      store_element(bytes_.data(), type, at, tensor.value(index));
      more = false;
      for (size_t i = index.size(); i-- > 0 && !more;) {
        more = ++index[i] < shape_[i];
        if (!more) index[i] = 0;
      }
    }
  }

  TensorView host_view() { return {bytes_.data() + first_ * size_of(type_), type_, shape_, strides_}; }
  TensorView device_view(Runtime& runtime) {
    if (runtime.is_simulator()) return host_view();
    buffer_ = std::make_unique<DeviceBuffer>(runtime, bytes_.size());
    buffer_->upload(bytes_.data());
    return {static_cast<char*>(buffer_->data()) + first_ * size_of(type_), type_, shape_, strides_};
  }

 private:
  DataType type_;
  std::vector<int64_t> shape_, strides_;
  int64_t first_ = 0;
  std::vector<unsigned char> bytes_;
  std::unique_ptr<DeviceBuffer> buffer_;
};

ExpressionData::ExpressionData(const AttentionCase& attention, const AttentionSpec& spec) {
  const Declarations declared = launch_declarations(spec);
  for (const auto& [name, tensor] : attention.tensors)
    if (const auto type = declared.tensors.find(name); type != declared.tensors.end())
      tensors_[name] = std::make_unique<Tensor>(data_type(type->second.element), tensor);
  for (const auto& [name, value] : attention.scalars)
    if (declared.scalars.count(name)) scalars_[name] = value;
}
ExpressionData::ExpressionData(ExpressionData&&) noexcept = default;
ExpressionData::~ExpressionData() = default;

std::vector<std::string> ExpressionData::names() const {
  std::vector<std::string> names;
  for (const auto& entry : tensors_) names.push_back(entry.first);
  return names;
}

TensorView ExpressionData::view(Runtime* runtime, const std::string& name) {
  Tensor& tensor = *tensors_.at(name);
  return runtime ? tensor.device_view(*runtime) : tensor.host_view();
}

RuntimeOptions simulator_options(uint64_t seed, const std::string& target) {
  RuntimeOptions options;
  options.device.kind = DeviceChoice::Kind::simulator;
  options.disk_cache = false;
  options.simulator.seed = seed;
  options.simulated_target = target;
  return options;
}

AttentionResult run_case(Runtime& runtime, const AttentionCase& attention) {
  AttentionResult result;
  result.spec = parse_spec(attention.spec, "spec");
  const AttentionSpec& spec = result.spec;
  const int64_t heads = attention.heads_kv * spec.gqa_ratio;
  const auto make = [&](char name, DataType type, int64_t rows, int64_t tensor_heads, int64_t columns) {
    return make_tensor(spec, attention, name, type, rows, tensor_heads, columns);
  };
  result.q = make('q', spec.dtype.q, attention.seqlen_q, heads, spec.head_dim.qk);
  result.k = make('k', spec.dtype.kv, attention.seqlen_kv, attention.heads_kv, spec.head_dim.qk);
  result.v = make('v', spec.dtype.kv, attention.seqlen_kv, attention.heads_kv, spec.head_dim.v);
  result.out = make('o', spec.dtype.out, attention.seqlen_q, heads, spec.head_dim.v);
  result.lse = GuardedTensor(DataType::fp32, {attention.batch, heads, attention.seqlen_q},
                             {heads * attention.seqlen_q, attention.seqlen_q, 1});
  std::mt19937_64 random(attention.seed);
  fill_tensor(result.q, 'q', attention, random);
  fill_tensor(result.k, 'k', attention, random);
  fill_tensor(result.v, 'v', attention, random);

  const auto kernel = runtime.kernel(spec);
  std::unique_ptr<DeviceBuffer> buffers[5];
  ForwardArguments arguments = {.q = result.q.device_view(runtime, buffers[0]),
                                .k = result.k.device_view(runtime, buffers[1]),
                                .v = result.v.device_view(runtime, buffers[2]),
                                .out = result.out.device_view(runtime, buffers[3])};
  if (spec.lse) arguments.lse = result.lse.device_view(runtime, buffers[4]);
  if (spec.softmax_scale_at_launch) arguments.softmax_scale = 0.3;
  if (spec.dropout) arguments.dropout = attention.dropout;
  // From shares too small to see to such that leave the keys nearly nothing, in the spec's type.
  GuardedTensor sinks(spec.dtype.q, {heads}, {1});
  std::unique_ptr<DeviceBuffer> sink_buffer;
  for (int64_t h = 0; h < heads; ++h) sinks.set(h, static_cast<double>(h * 7 % 5) * 4 - 6);
  if (spec.sinks) arguments.sinks = sinks.device_view(runtime, sink_buffer);
  BlockLists lists(attention, spec, random);
  lists.give(&runtime, arguments);
  ExpressionData expressions(attention, spec);
  expressions.give(&runtime, arguments);
  DeviceBuffer workspace(runtime, static_cast<size_t>(kernel->workspace_size(launch_shape(arguments))));
  workspace.fill(0xff);
  arguments.workspace = workspace.data();
  arguments.workspace_bytes = workspace.bytes();
  kernel->launch(nullptr, arguments);
  runtime.synchronize();
  result.out.fetch(buffers[3]);
  result.lse.fetch(buffers[4]);

  ForwardArguments host = {.q = result.q.host_view(),
                           .k = result.k.host_view(),
                           .v = result.v.host_view(),
                           .out = result.out.host_view(),
                           .softmax_scale = arguments.softmax_scale,
                           .dropout = arguments.dropout};
  if (spec.lse) host.lse = result.lse.host_view();
  if (spec.sinks) host.sinks = sinks.host_view();
  lists.give(nullptr, host);
  expressions.give(nullptr, host);
  result.verdict = compare_forward(spec, host);
  const std::string place = attention.spec + " batch " + std::to_string(attention.batch) + " kv heads " +
                            std::to_string(attention.heads_kv) + " lengths " +
                            std::to_string(attention.seqlen_q) + ", " + std::to_string(attention.seqlen_kv) +
                            ", schedule " + describe(kernel->variant_for(launch_shape(host)).schedule);
  EXPECT_TRUE(result.verdict.ok) << place << ": " << result.verdict.message;
  for (const GuardedTensor* tensor : {&result.q, &result.k, &result.v, &result.out, &result.lse})
    EXPECT_TRUE(tensor->guards_intact()) << place << ": bytes beside a tensor were written";
  return result;
}

}  // namespace tilewright::test
