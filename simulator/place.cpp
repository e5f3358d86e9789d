#include "simulator/place.h"

#include <bit>

#include <fmt/format.h>

namespace tilewright::simulator {

const char* name_of(Primitive primitive) {
  switch (primitive) {
    case Primitive::none:
      return "kernel";
    case Primitive::block_barrier:
      return "block_barrier";
    case Primitive::warp_barrier:
      return "warp_barrier";
    case Primitive::shuffle_xor:
      return "shuffle_xor";
    case Primitive::warp_any:
      return "warp_any";
    case Primitive::warp_ballot:
      return "warp_ballot";
    case Primitive::shared_load:
      return "shared_load";
    case Primitive::shared_store:
      return "shared_store";
    case Primitive::load_matrix_x4:
      return "load_matrix_x4";
    case Primitive::global_load:
      return "global_load";
    case Primitive::global_store:
      return "global_store";
    case Primitive::copy_async_16:
      return "copy_async_16";
    case Primitive::copy_async_commit:
      return "copy_async_commit";
    case Primitive::copy_async_wait:
      return "copy_async_wait";
    case Primitive::matrix_multiply_16x8x16:
      return "matrix_multiply_16x8x16";
    case Primitive::uniform:
      return "uniform";
    case Primitive::named_barrier_wait:
      return "named_barrier_wait";
    case Primitive::named_barrier_arrive:
      return "named_barrier_arrive";
    case Primitive::barrier_initialize:
      return "barrier_initialize";
    case Primitive::fence_barrier_initialization:
      return "fence_barrier_initialization";
    case Primitive::barrier_arrive:
      return "barrier_arrive";
    case Primitive::barrier_arrive_expecting:
      return "barrier_arrive_expecting";
    case Primitive::barrier_wait:
      return "barrier_wait";
    case Primitive::global_add:
      return "global_add";
    case Primitive::global_sum:
      return "global_sum";
    case Primitive::global_wait:
      return "global_wait";
    case Primitive::tensor_load:
      return "tensor_load";
    case Primitive::tensor_load_multicast:
      return "tensor_load_multicast";
    case Primitive::cluster_barrier:
      return "cluster_barrier";
    case Primitive::map_to_block:
      return "map_to_block";
    case Primitive::barrier_arrive_in_cluster:
      return "barrier_arrive_in_cluster";
    case Primitive::warpgroup_fence:
      return "warpgroup_fence";
    case Primitive::warpgroup_multiply:
      return "warpgroup_multiply";
    case Primitive::warpgroup_commit:
      return "warpgroup_commit";
    case Primitive::warpgroup_wait:
      return "warpgroup_wait";
    case Primitive::set_registers:
      return "set_registers";
    case Primitive::store_matrix_x4:
      return "store_matrix_x4";
    case Primitive::fence_async_shared:
      return "fence_async_shared";
    case Primitive::bulk_load:
      return "bulk_load";
    case Primitive::bulk_reduce_add:
      return "bulk_reduce_add";
    case Primitive::bulk_commit:
      return "bulk_commit";
    case Primitive::bulk_wait:
      return "bulk_wait";
  }
  return "?";
}

std::string describe(Place place) {
  return fmt::format("{} at line {}", name_of(place.primitive()), place.line());
}

std::string describe_thread(int thread) {
  return fmt::format("warp {} lane {}", thread / 32, thread % 32);
}

std::string describe_lanes(uint32_t lanes) {
  std::string text;
  for (int first = 0; first < 32; ++first) {
    if (!(lanes >> first & 1)) continue;
    int last = first;
    while (last < 31 && (lanes >> (last + 1) & 1)) ++last;
    text += text.empty() ? "" : ", ";
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    first = last;
  }
  return (std::popcount(lanes) == 1 ? "lane " : "lanes ") + text;
}

}  // namespace tilewright::simulator
