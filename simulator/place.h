// A place in a kernel: which primitive, at which line of the generated source.
#pragma once

#include <cstdint>
#include <string>

namespace tilewright::simulator {

/// Named as in SimulatorInterface.
enum class Primitive : uint8_t {
  none,
  block_barrier,
  warp_barrier,
  shuffle_xor,
  warp_any,
  warp_ballot,
  shared_load,
  shared_store,
  load_matrix_x4,
  global_load,
  global_store,
  copy_async_16,
  copy_async_commit,
  copy_async_wait,
  matrix_multiply_16x8x16,
  uniform,
  named_barrier_wait,
  named_barrier_arrive,
  barrier_initialize,
  fence_barrier_initialization,
  barrier_arrive,
  barrier_arrive_expecting,
  barrier_wait,
  global_add,
  global_sum,
  global_wait,
  tensor_load,
  tensor_load_multicast,
  cluster_barrier,
  map_to_block,
  barrier_arrive_in_cluster,
  warpgroup_fence,
  warpgroup_multiply,
  warpgroup_commit,
  warpgroup_wait,
  set_registers,
  store_matrix_x4,
  fence_async_shared,
  bulk_load,
  bulk_reduce_add,
  bulk_commit,
  bulk_wait
};
const char* name_of(Primitive primitive);

/// Four bytes, because the race checker keeps several for each word of shared memory. Lines stop at 2^24 - 1.
class Place {
 public:
  Place() = default;
  Place(Primitive primitive, int line)
      : bits_(static_cast<uint32_t>(primitive) << 24 | (static_cast<uint32_t>(line) & 0xffffff)) {}
  Primitive primitive() const { return static_cast<Primitive>(bits_ >> 24); }
  int line() const { return static_cast<int>(bits_ & 0xffffff); }
  bool operator==(const Place&) const = default;

 private:
  uint32_t bits_ = 0;
};

/// "shared_load at line 12"
std::string describe(Place place);

/// "warp 2 lane 5"
std::string describe_thread(int thread);

/// "lanes 0-3, 7"; "lane 7"
std::string describe_lanes(uint32_t lanes);

}  // namespace tilewright::simulator
