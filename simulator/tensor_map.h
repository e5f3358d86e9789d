// What the 128 bytes of a tensor map hold on the simulator; a GPU's are opaque and made by its driver.
#pragma once

#include <cstdint>
#include <cstring>

namespace tilewright::simulator {

/// A tensor of rank 4 (columns, rows, heads, batch) and the box that one copy brings to shared memory,
/// swizzled in 128-byte rows. The copy engine's rules: base and strides are multiples of 16 bytes, a row of a
/// box has at most 128 bytes, no side of a box more than 256 elements. The simulator checks them at each use.
struct SimulatedTensorMap {
  const void* base = nullptr;
  int64_t extents[4] = {};  // elements; 0: nothing is inside, boxes are zeros
  int64_t strides[3] = {};  // bytes from row to row, head to head, batch to batch
  int32_t box[4] = {};      // elements
  int32_t element_bytes = 0;
  uint64_t magic = 0;  // `valid` once encoded
  static constexpr uint64_t valid = 0x70616d726f736e74;
};

/// Writes a map to the 128 bytes that a kernel's parameters hold of it.
inline void encode(SimulatedTensorMap map, void* tensor_map) {
  static_assert(sizeof map <= 128);
  map.magic = SimulatedTensorMap::valid;
  std::memset(tensor_map, 0, 128);
  std::memcpy(tensor_map, &map, sizeof map);
}

inline SimulatedTensorMap decode(const void* tensor_map) {
  SimulatedTensorMap map;
  std::memcpy(&map, tensor_map, sizeof map);
  return map;
}

}  // namespace tilewright::simulator
