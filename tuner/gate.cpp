#include "tuner/gate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace tilewright {
namespace {

constexpr size_t guard_bytes = 256;
constexpr unsigned char guard = 0xA5;

/// Device memory for a scope.
class Buffer {
 public:
  Buffer(Device& device, const std::vector<unsigned char>& bytes) : device_(device) {
    std::vector<unsigned char> image(bytes.size() + 2 * guard_bytes, guard);
    std::copy(bytes.begin(), bytes.end(), image.begin() + guard_bytes);
    size_ = image.size();
    data_ = device.allocate(size_);
    device.upload(data_, image.data(), size_);
  }
  ~Buffer() { device_.free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* inside() const { return static_cast<char*>(data_) + guard_bytes; }
  /// Returns whether the guards are as they were.
  bool download(std::vector<unsigned char>& bytes) const {
    std::vector<unsigned char> image(size_);
    device_.download(image.data(), data_, size_);
    const auto first = image.begin() + guard_bytes, last = image.end() - guard_bytes;
    std::copy(first, last, bytes.begin());
    const auto intact = [](unsigned char byte) { return byte == guard; };
    return std::all_of(image.begin(), first, intact) && std::all_of(last, image.end(), intact);
  }

 private:
  Device& device_;
  void* data_;
  size_t size_;
};

void fill(InputTensor& tensor, bool outliers, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const int64_t count = static_cast<int64_t>(tensor.bytes.size()) / size_of(tensor.type);
  for (int64_t i = 0; i < count; ++i) {
    const double value = normal(random);
    store_element(tensor.bytes.data(), tensor.type, i, outliers && random() % 50 == 0 ? 20 * value : value);
  }
}

std::string shape_text(const LaunchShape& shape) {
  return "batch " + std::to_string(shape.batch) + ", " + std::to_string(shape.heads) + " heads, " +
         std::to_string(shape.seqlen_q) + " queries, " + std::to_string(shape.seqlen_kv) + " keys";
}

}  // namespace

std::string no_inputs_because(const AttentionSpec& spec) {
  if (spec.pass != Pass::forward) return "tuning covers the forward pass";
  if (spec.layout != Layout::bshd && spec.layout != Layout::bhsd)
    return "tuning covers the layouts bshd and bhsd";
  if (spec.alibi || spec.bias || !spec.declarations.scalars.empty() ||
      !spec.declarations.tensors.empty())
    return "tuning does not cover launches with more than Q, K, V and sinks";
  return {};
}

InputTensor::InputTensor(DataType tensor_type, std::vector<int64_t> tensor_shape)
    : type(tensor_type), shape(std::move(tensor_shape)) {
  int64_t size = size_of(type);
  for (int64_t dimension : shape) size *= dimension;
  bytes.assign(static_cast<size_t>(size), 0xFF);  // NaN in every type
}

TensorView InputTensor::view(void* data) {
  return {data ? data : bytes.data(), type, shape, {}};
}

ForwardArguments Gate::Case::host() {
  ForwardArguments arguments{.q = q.view(), .k = k.view(), .v = v.view(), .out = out.view()};
  if (!lse.bytes.empty()) arguments.lse = lse.view();
  if (with_sinks) arguments.sinks = sinks.view();
  return arguments;
}

Gate::Gate(const AttentionSpec& spec) : spec_(spec) {
  // 1100 keys go around every ring of tiles; fewer keys than queries leave causal rows without any; 96 of 96
  // fill tiles of 96 and of 32 and no others.
  const int64_t kv_heads = spec.gqa_ratio >= 4 ? 1 : 2, heads = kv_heads * spec.gqa_ratio;
  cases_.push_back(make_case({1, heads, 77, 1100}, true, 1));
  cases_.push_back(make_case({1, heads, 261, 150}, false, 2));
  cases_.push_back(make_case({2, heads, 96, 96}, false, 3));
  cases_.push_back(make_case({1, heads, 1, 129}, true, 4));
}

Gate::Case Gate::make_case(const LaunchShape& shape, bool outliers, uint64_t seed) {
  const int64_t kv_heads = shape.heads / spec_.gqa_ratio;
  Case one{shape,
           {spec_.dtype.q, {shape.batch, shape.seqlen_q, shape.heads, spec_.head_dim.qk}},
           {spec_.dtype.kv, {shape.batch, shape.seqlen_kv, kv_heads, spec_.head_dim.qk}},
           {spec_.dtype.kv, {shape.batch, shape.seqlen_kv, kv_heads, spec_.head_dim.v}},
           {DataType::fp32, {shape.heads}},
           {spec_.dtype.out, {shape.batch, shape.seqlen_q, shape.heads, spec_.head_dim.v}},
           {DataType::fp32, {shape.batch, shape.heads, spec_.lse ? shape.seqlen_q : 0}},
           {},
           spec_.sinks};
  fill(one.sinks, false, 5 * seed);
  fill(one.q, outliers, 3 * seed);
  fill(one.k, outliers, 3 * seed + 1);
  fill(one.v, false, 3 * seed + 2);
  ForwardArguments arguments = one.host();
  if (spec_.softmax_scale_at_launch) arguments.softmax_scale = 1 / std::sqrt(spec_.head_dim.qk);
  one.answers = forward_answers(spec_, arguments);
  return one;
}

std::string Gate::refuse(Device& device, const Schedule& schedule, const Executable& executable) {
  for (Case& one : cases_) {
    const std::string wrong = refuse_case(device, schedule, executable, one);
    if (!wrong.empty()) return "wrong with " + shape_text(one.shape) + ": " + wrong;
  }
  return {};
}

std::string Gate::refuse_case(Device& device, const Schedule& schedule, const Executable& executable,
                              Case& one) {
  std::fill(one.out.bytes.begin(), one.out.bytes.end(), 0xFF);
  std::fill(one.lse.bytes.begin(), one.lse.bytes.end(), 0xFF);
  const Buffer q(device, one.q.bytes), k(device, one.k.bytes), v(device, one.v.bytes);
  const Buffer out(device, one.out.bytes), lse(device, one.lse.bytes), sinks(device, one.sinks.bytes);
  ForwardArguments arguments{.q = one.q.view(q.inside()),
                             .k = one.k.view(k.inside()),
                             .v = one.v.view(v.inside()),
                             .out = one.out.view(out.inside())};
  if (spec_.lse) arguments.lse = one.lse.view(lse.inside());
  if (spec_.sinks) arguments.sinks = one.sinks.view(sinks.inside());
  if (spec_.softmax_scale_at_launch) arguments.softmax_scale = 1 / std::sqrt(spec_.head_dim.qk);
  executable.launch(nullptr, prepare_launch(spec_, schedule, arguments), arguments, {});
  device.synchronize();
  const bool out_intact = out.download(one.out.bytes), lse_intact = lse.download(one.lse.bytes);
  if (!out_intact || !lse_intact) return "bytes beside the output were written";
  ForwardArguments host = one.host();
  host.softmax_scale = arguments.softmax_scale;
  const Verdict verdict = compare_forward(spec_, host, one.answers);
  return verdict.ok ? "" : verdict.message;
}

}  // namespace tilewright
