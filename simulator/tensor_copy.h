// The copy engine's work: to shared memory a box of a tensor of rank 4, swizzled, or plain bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "simulator/global_memory.h"
#include "simulator/place.h"
#include "simulator/tensor_map.h"

namespace tilewright::simulator {

/// A copy between its issue and its landing.
struct TensorCopy {
  SimulatedTensorMap map;
  uint32_t destination = 0;
  uint32_t barrier = 0;
  int coordinates[4] = {};
  const void* plain = nullptr;  // not null: `plain_bytes` from here, and no box
  int plain_bytes = 0;
  uint32_t id = 0;  // the race checker's
  int thread = 0;   // who issued it
  Place place;

  int rows() const { return map.box[1] * map.box[2] * map.box[3]; }
  /// All of the box, also what lies outside of the tensor.
  int bytes() const { return plain ? plain_bytes : rows() * 128; }
};

/// What is wrong with a map, or with a destination of its box; empty: nothing.
std::string tensor_map_fault(const SimulatedTensorMap& map);

/// The bytes inside of the tensor must be readable; says what is not, empty: all are.
std::string tensor_read_fault(const TensorCopy& copy, const GlobalMemory& global);

/// Writes plain bytes, or the box to `destination` (aligned to 1024 bytes): row r is 128 bytes, whose 16-byte
/// chunk c lies at place c XOR r % 8. What lies outside of the tensor becomes zero.
void copy_to_shared(const TensorCopy& copy, std::byte* destination);

}  // namespace tilewright::simulator
