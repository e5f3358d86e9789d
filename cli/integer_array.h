// Arrays of integers that launches take beside tensors: where sequences begin, which blocks are seen.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/launch_plan.h"
#include "runtime/device_buffer.h"
#include "tilewright/tilewright.hpp"
#include "tuner/launch_inputs.h"

namespace tilewright::cli {

/// In host memory and on the device.
class IntegerArray {
 public:
  /// `shape` times out to the size of `numbers`.
  IntegerArray(Runtime& runtime, std::vector<int32_t> numbers, std::vector<int64_t> shape);
  TensorView on_device() { return {buffer_.data(), DataType::int32, shape_, {}}; }
  TensorView on_host() { return {numbers_.data(), DataType::int32, shape_, {}}; }

 private:
  std::vector<int32_t> numbers_;
  std::vector<int64_t> shape_;
  DeviceBuffer buffer_;
};

/// Sums of the lengths before each sequence, and of all.
IntegerArray sequence_starts(Runtime& runtime, const std::vector<int64_t>& lengths);

/// Lists for a mask with blocks: about half of them, for every batch and head others.
struct DrawnBlocks {
  DrawnBlocks(Runtime& runtime, const Mask::Blocks& size, const LaunchShape& shape, uint64_t seed);
  IntegerArray rows, columns;

 private:
  DrawnBlocks(Runtime& runtime, BlockLists lists, const LaunchShape& shape);
};

}  // namespace tilewright::cli
