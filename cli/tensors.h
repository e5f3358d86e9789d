// Tensors for `tilewright run`: in host memory as inputs and answers, on the device with guards around them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/npy.h"
#include "runtime/device_buffer.h"
#include "tilewright/tilewright.hpp"

namespace tilewright::cli {

/// [batch, sequence, heads, head_dim] (LSE: [batch, heads, sequence]) in host memory, contiguous in the order
/// that the layout says.
class HostTensor {
 public:
  /// Filled with 0xFF bytes: NaN in every element type. Throws Error(usage) if the size passes 2^40 bytes.
  HostTensor(DataType dtype, std::vector<int64_t> shape, Layout layout);

  /// Standard normal, the same values for the same seed and shape, whatever the layout; rounded to the dtype.
  void fill_normal(uint64_t seed);
  /// Rounded to the dtype. `values` in C order of `shape`.
  void fill(const std::vector<double>& values);
  /// In C order of `shape`.
  std::vector<double> values() const;

  const std::vector<int64_t>& shape() const { return shape_; }
  std::vector<unsigned char>& bytes() { return bytes_; }
  /// The same tensor at another address: `data` null is this one's own memory.
  TensorView view(void* data = nullptr);

 private:
  int64_t count() const;
  int64_t offset_of(int64_t index) const;  // of the element at an index in C order

  DataType dtype_;
  std::vector<int64_t> shape_, strides_;
  std::vector<unsigned char> bytes_;
};

/// A tensor on the device between guard bytes, which a kernel must leave alone.
class GuardedTensor {
 public:
  /// Uploads the tensor with its present values.
  GuardedTensor(Runtime& runtime, HostTensor& tensor);

  TensorView view() { return tensor_->view(static_cast<char*>(buffer_.data()) + guard_bytes); }
  /// Brings the values to the host tensor. Returns whether the guards are as they were.
  bool download();

 private:
  static constexpr size_t guard_bytes = 256;  // keeps the buffer's alignment
  static constexpr unsigned char guard = 0xA5;

  HostTensor* tensor_;
  DeviceBuffer buffer_;
};

}  // namespace tilewright::cli
