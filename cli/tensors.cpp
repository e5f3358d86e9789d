#include "cli/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "codegen/error.h"
#include "runtime/reference.h"

namespace tilewright::cli {
namespace {

/// Row-major over `order`, the slowest dimension first.
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape, const std::vector<size_t>& order) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= std::max<int64_t>(shape[order[i]], 1);
  }
  return strides;
}

size_t checked_bytes(DataType dtype, const std::vector<int64_t>& shape) {
  constexpr int64_t limit = int64_t{1} << 40;
  int64_t bytes = size_of(dtype);
  for (int64_t size : shape) {
    if (size != 0 && bytes > limit / size) {
      throw Error(ErrorKind::usage,
                  fmt::format("a tensor of shape {} is too large; expected at most {} bytes",
                              shape_text(shape), limit));
    }
    bytes *= size;
  }
  return static_cast<size_t>(bytes);
}

/// Standard normal by Box and Muller: the same numbers with every standard library.
class NormalSource {
 public:
  explicit NormalSource(uint64_t seed) : generator_(seed) {}
  double next() {
    double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  /// In (0, 1].
  double uniform() { return (static_cast<double>(generator_() >> 11) + 1) * 0x1p-53; }
  std::mt19937_64 generator_;
};

}  // namespace

HostTensor::HostTensor(DataType dtype, std::vector<int64_t> shape, Layout layout)
    : dtype_(dtype), shape_(std::move(shape)), bytes_(checked_bytes(dtype, shape_), 0xFF) {
  bool heads_first = layout == Layout::bhsd && shape_.size() == 4;
  std::vector<size_t> order(shape_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (heads_first) std::swap(order[1], order[2]);
  strides_ = contiguous_strides(shape_, order);
}

int64_t HostTensor::count() const {
  return static_cast<int64_t>(bytes_.size()) / size_of(dtype_);
}

int64_t HostTensor::offset_of(int64_t index) const {
  int64_t offset = 0;
  for (size_t i = shape_.size(); i-- > 0;) {
    offset += index % shape_[i] * strides_[i];
    index /= shape_[i];
  }
  return offset;
}

void HostTensor::fill_normal(uint64_t seed) {
  NormalSource source(seed);
  for (int64_t i = 0; i < count(); ++i) store_element(bytes_.data(), dtype_, offset_of(i), source.next());
}

void HostTensor::fill(const std::vector<double>& values) {
  for (int64_t i = 0; i < count(); ++i) {
    store_element(bytes_.data(), dtype_, offset_of(i), values[static_cast<size_t>(i)]);
  }
}

std::vector<double> HostTensor::values() const {
  std::vector<double> values(static_cast<size_t>(count()));
  for (int64_t i = 0; i < count(); ++i) {
    values[static_cast<size_t>(i)] = load_element(bytes_.data(), dtype_, offset_of(i));
  }
  return values;
}

TensorView HostTensor::view(void* data) {
  return {data ? data : bytes_.data(), dtype_, shape_, strides_};
}

GuardedTensor::GuardedTensor(Runtime& runtime, HostTensor& tensor)
    : tensor_(&tensor), buffer_(runtime, tensor.bytes().size() + 2 * guard_bytes) {
  std::vector<unsigned char> image(buffer_.bytes(), guard);
  std::copy(tensor.bytes().begin(), tensor.bytes().end(), image.begin() + guard_bytes);
  buffer_.upload(image.data());
}

bool GuardedTensor::download() {
  std::vector<unsigned char> image(buffer_.bytes());
  buffer_.download(image.data());
  auto first = image.begin() + guard_bytes, last = image.end() - guard_bytes;
  std::copy(first, last, tensor_->bytes().begin());
  auto intact = [](unsigned char byte) { return byte == guard; };
  return std::all_of(image.begin(), first, intact) && std::all_of(last, image.end(), intact);
}

}  // namespace tilewright::cli
