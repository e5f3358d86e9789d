#include "simulator/tensor_copy.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace tilewright::simulator {
namespace {

struct Row {
  const std::byte* source = nullptr;  // of column coordinates[0], which may lie outside
  int first = 0, end = 0;             // the bytes of it that lie inside of the tensor
};

// The rows of a box in shared memory: rows of the tensor within heads within batches.
Row row_of(const TensorCopy& copy, int index) {
  const SimulatedTensorMap& map = copy.map;
  const int64_t at[3] = {int64_t{copy.coordinates[1]} + index % map.box[1],
                         int64_t{copy.coordinates[2]} + index / map.box[1] % map.box[2],
                         int64_t{copy.coordinates[3]} + index / map.box[1] / map.box[2]};
  int64_t offset = int64_t{copy.coordinates[0]} * map.element_bytes;
  for (int i = 0; i < 3; ++i) {
    if (at[i] < 0 || at[i] >= map.extents[i + 1]) return {};
    offset += at[i] * map.strides[i];
  }
  const int64_t columns = map.box[0];
  const int64_t first = std::clamp<int64_t>(-int64_t{copy.coordinates[0]}, 0, columns);
  const int64_t end = std::clamp<int64_t>(map.extents[0] - copy.coordinates[0], first, columns);
  return {static_cast<const std::byte*>(map.base) + offset, static_cast<int>(first * map.element_bytes),
          static_cast<int>(end * map.element_bytes)};
}

}  // namespace

std::string tensor_map_fault(const SimulatedTensorMap& map) {
  if (map.magic != SimulatedTensorMap::valid) return "the tensor map was not made by simulator::encode";
  if (reinterpret_cast<uintptr_t>(map.base) % 16 != 0) {
    return fmt::format("the tensor map's base {} is not a multiple of 16", map.base);
  }
  for (const int64_t stride : map.strides) {
    if (stride % 16 != 0 || stride < 0) {
      return fmt::format("the tensor map has a stride of {} bytes, expected a multiple of 16", stride);
    }
  }
  for (const int side : map.box) {
    if (side < 1 || side > 256) return fmt::format("the box has a side of {}, expected 1 to 256", side);
  }
  for (const int64_t extent : map.extents) {
    if (extent < 0) return fmt::format("the tensor map has an extent of {}", extent);
  }
  if (map.box[0] * map.element_bytes != 128) {
    return fmt::format("the box has rows of {} bytes, expected 128", map.box[0] * map.element_bytes);
  }
  return "";
}

std::string tensor_read_fault(const TensorCopy& copy, const GlobalMemory& global) {
  for (int index = 0; index < copy.rows(); ++index) {
    const Row row = row_of(copy, index);
    if (row.first == row.end || global.may_read(row.source + row.first, row.end - row.first)) continue;
    return fmt::format("row {} of the box: global memory: {}", index,
                       global.read_fault(row.source + row.first, row.end - row.first));
  }
  return "";
}

void copy_to_shared(const TensorCopy& copy, std::byte* destination) {
  if (copy.plain) {
    std::memcpy(destination, copy.plain, copy.plain_bytes);
    return;
  }
  for (int index = 0; index < copy.rows(); ++index, destination += 128) {
    const Row row = row_of(copy, index);
    std::byte line[128] = {};
    if (row.end > row.first) std::memcpy(line + row.first, row.source + row.first, row.end - row.first);
    for (int chunk = 0; chunk < 8; ++chunk) {
      std::memcpy(destination + (chunk ^ index % 8) * 16, line + chunk * 16, 16);
    }
  }
}

}  // namespace tilewright::simulator
