// One forward launch with its inputs made, its outputs poisoned and guarded, and its answer checked.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "runtime/device_buffer.h"
#include "runtime/include/tilewright/tilewright.hpp"
#include "runtime/reference.h"

namespace tilewright::test {

/// What the inputs hold. `outliers`: one element in 50 is 20 times larger. `near_minus`: scores near -level.
enum class Data { normal, outliers, near_minus, eighths };

/// A tensor for expressions: `value` of the index of an element; `strides` empty: contiguous, negative ones
/// are counted from the other end.
struct NamedTensor {
  std::vector<int64_t> shape;
  std::function<double(const std::vector<int64_t>&)> value;
  std::vector<int64_t> strides = {};
};

struct AttentionCase {
  std::string spec;  // YAML
  int64_t batch = 1, heads_kv = 1, seqlen_q = 64, seqlen_kv = 64;
  Data data = Data::normal;
  double level = 0;
  uint64_t seed = 1;
  /// Changes an input element after it was made: tensor 'q', 'k' or 'v', then batch, row, head, column.
  std::function<double(char, int64_t, int64_t, int64_t, int64_t, double)> adjust;
  /// Strides of q, k, v, out in elements (batch, row, head); empty: contiguous in the spec's layout.
  std::function<std::vector<int64_t>(char, const std::vector<int64_t>& shape)> strides;
  /// What the spec's expressions take; names that it does not declare are left out.
  std::map<std::string, double> scalars;
  std::map<std::string, NamedTensor> tensors;
  /// `dropout: true`.
  Dropout dropout = {.rate = 0.2, .seed = 0x0123456789abcdef, .offset = 3};
  /// Of a mask with blocks: columns of each row of blocks, [batch or 1][heads or 1][row]; empty: drawn for
  /// all.
  std::vector<std::vector<std::vector<std::vector<int32_t>>>> blocks;
};

/// A tensor in host memory with guard bytes on both sides.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  GuardedTensor(DataType type, std::vector<int64_t> shape, std::vector<int64_t> strides)
      : type_(type), shape_(std::move(shape)), strides_(std::move(strides)) {
    int64_t last = 0;
    bool empty = false;
    for (size_t i = 0; i < shape_.size(); ++i) {
      empty |= shape_[i] == 0;
      last += (shape_[i] - 1) * strides_[i];
    }
    elements_ = empty ? 0 : last + 1;
    bytes_.assign(2 * guard + elements_ * size_of(type), 0xff);  // NaN in every type
    std::memset(bytes_.data(), guard_value, guard);
    std::memset(bytes_.data() + bytes_.size() - guard, guard_value, guard);
  }

  void set(int64_t index, double value) { store_element(bytes_.data() + guard, type_, index, value); }
  double get(int64_t index) const { return load_element(bytes_.data() + guard, type_, index); }
  int64_t elements() const { return elements_; }
  const std::vector<int64_t>& strides() const { return strides_; }
  const std::vector<int64_t>& shape() const { return shape_; }

  bool guards_intact() const {
    for (size_t i = 0; i < guard; ++i)
      if (bytes_[i] != guard_value || bytes_[bytes_.size() - 1 - i] != guard_value) return false;
    return true;
  }
  std::string live_bytes() const {
    return bytes_.empty() ? std::string() : std::string(bytes_.begin() + guard, bytes_.end() - guard);
  }

  TensorView host_view() { return {bytes_.data() + guard, type_, shape_, strides_}; }
  /// On the simulator the buffer itself; on a GPU a copy, guards and all.
  TensorView device_view(Runtime& runtime, std::unique_ptr<DeviceBuffer>& buffer) {
    if (runtime.is_simulator()) return host_view();
    buffer = std::make_unique<DeviceBuffer>(runtime, bytes_.size());
    buffer->upload(bytes_.data());
    return {static_cast<char*>(buffer->data()) + guard, type_, shape_, strides_};
  }
  void fetch(const std::unique_ptr<DeviceBuffer>& buffer) {
    if (buffer) buffer->download(bytes_.data());
  }

 private:
  static constexpr size_t guard = 256;
  static constexpr unsigned char guard_value = 0xa5;
  DataType type_ = DataType::bf16;
  std::vector<int64_t> shape_, strides_;
  int64_t elements_ = 0;
  std::vector<unsigned char> bytes_;
};

/// What a case gives to its spec's expressions, on the device and on the host.
class ExpressionData {
 public:
  ExpressionData(const AttentionCase& attention, const AttentionSpec& spec);
  ExpressionData(ExpressionData&&) noexcept;
  ~ExpressionData();
  /// `runtime` null: host memory. Of forward and backward arguments.
  template <typename Arguments>
  void give(Runtime* runtime, Arguments& arguments) {
    arguments.scalars = scalars_;
    for (const std::string& name : names()) arguments.tensors[name] = view(runtime, name);
  }

 private:
  std::vector<std::string> names() const;
  TensorView view(Runtime* runtime, const std::string& name);
  class Tensor;
  std::map<std::string, double> scalars_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
};

struct AttentionResult {
  AttentionSpec spec;
  GuardedTensor q, k, v, out, lse;
  Verdict verdict;
  double out_at(int64_t b, int64_t row, int64_t head, int64_t column) const {
    const auto& s = out.strides();
    return out.get(b * s[0] + row * s[1] + head * s[2] + column);
  }
  double lse_at(int64_t b, int64_t head, int64_t row) const {
    return lse.get((b * lse.shape()[1] + head) * lse.shape()[2] + row);
  }
};

/// A tensor of a case, 0xff throughout: rows of heads of columns, in the strides that the case says for
/// `name`.
GuardedTensor make_tensor(const AttentionSpec& spec, const AttentionCase& attention, char name, DataType type,
                          int64_t rows, int64_t heads, int64_t columns);
/// Fills in what the case says for an input of that name.
void fill_tensor(GuardedTensor& tensor, char name, const AttentionCase& attention, std::mt19937_64& random);

/// Runs the case and checks it against the fp64 reference; a wrong answer is a failure of the current test.
AttentionResult run_case(Runtime& runtime, const AttentionCase& attention);

/// A runtime on the simulator that never touches the user's cache. `seed`: see SimulatorOptions.
RuntimeOptions simulator_options(uint64_t seed = 0, const std::string& target = "sm_80");

}  // namespace tilewright::test
