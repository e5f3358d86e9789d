// The emulation of the primitives that every family uses, and the table that SimulatorInterface points to.
#include "simulator/primitives.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "simulator/matrix.h"

namespace tilewright::simulator {
namespace {

int thread_index() {
  const Block& block = Block::current();
  return block.thread() % block.threads();
}

int block_index() {
  return static_cast<int>(Block::current().index());
}

int grid_blocks() {
  return static_cast<int>(Block::current().grid());
}

void block_barrier(int site) {
  Block::current().block_barrier({Primitive::block_barrier, site});
}

void warp_barrier(unsigned mask, int site) {
  Block::current().warp_barrier(mask, {Primitive::warp_barrier, site});
}

unsigned shuffle_xor(unsigned value, int lane_mask, int site) {
  struct Operands {
    unsigned value;
    int lane_mask;
    unsigned result;
  } operands{value, lane_mask, 0};
  Block& block = Block::current();
  const Place place(Primitive::shuffle_xor, site);
  if (lane_mask < 0 || lane_mask > 31) {
    block.fail(place, [&] { return fmt::format("lane mask {}, expected 0 to 31", lane_mask); });
  }
  block.collective(place, operands, [](Operands* const lanes[32]) {
    for (int lane = 0; lane < 32; ++lane) lanes[lane]->result = lanes[lane ^ lanes[lane]->lane_mask]->value;
  });
  return operands.result;
}

int warp_any(int predicate, int site) {
  struct Operands {
    int predicate;
    int result;
  } operands{predicate, 0};
  Block::current().collective({Primitive::warp_any, site}, operands, [](Operands* const lanes[32]) {
    int any = 0;
    for (int lane = 0; lane < 32; ++lane) any |= lanes[lane]->predicate != 0;
    for (int lane = 0; lane < 32; ++lane) lanes[lane]->result = any;
  });
  return operands.result;
}

unsigned warp_ballot(int predicate, int site) {
  struct Operands {
    int predicate;
    unsigned result;
  } operands{predicate, 0};
  Block::current().collective({Primitive::warp_ballot, site}, operands, [](Operands* const lanes[32]) {
    unsigned bits = 0;
    for (int lane = 0; lane < 32; ++lane) bits |= unsigned{lanes[lane]->predicate != 0} << lane;
    for (int lane = 0; lane < 32; ++lane) lanes[lane]->result = bits;
  });
  return operands.result;
}

int uniform(int value, int site) {
  struct Operands {
    int value;
    int result;
  } operands{value, 0};
  Block::current().collective({Primitive::uniform, site}, operands, [](Operands* const lanes[32]) {
    int largest = lanes[0]->value;
    for (int lane = 1; lane < 32; ++lane) largest = std::max(largest, lanes[lane]->value);
    for (int lane = 0; lane < 32; ++lane) lanes[lane]->result = largest;
  });
  return operands.result;
}

// --- shared memory

void check_size(Block& block, int bytes, int smallest, Place place) {
  if (bytes >= smallest && bytes <= 16 && (bytes & (bytes - 1)) == 0) return;
  block.fail(place, [&] {
    return fmt::format("an access of {} bytes, expected a power of two from {} to 16", bytes, smallest);
  });
}

}  // namespace

void check_shared_bounds(Block& block, int thread, const char* what, uint32_t address, int bytes,
                         Place place) {
  const uint32_t room = static_cast<uint32_t>(block.shared_bytes());
  const uint32_t offset = address - block.shared_base();  // of another block: a large one
  if (offset <= room && room - offset >= static_cast<uint32_t>(bytes)) return;
  block.fail(thread, place, [&] {
    return fmt::format(
        "out of bounds: {}{} bytes at shared byte {}, the block has {} bytes of shared memory{}", what, bytes,
        offset, room, block.cluster() == 1 ? "" : fmt::format(" from byte {} on", block.shared_base()));
  });
}

std::byte* shared_at(Block& block, int thread, uint32_t address, int bytes, Place place) {
  check_shared_bounds(block, thread, "", address, bytes, place);
  if (address % bytes != 0) {
    block.fail(thread, place, [&] {
      return fmt::format("misaligned: {} bytes at shared byte {}, expected a multiple of {}", bytes, address,
                         bytes);
    });
  }
  if (const int64_t barrier = block.memory_barriers().overlapping(address, bytes); barrier >= 0) {
    block.fail(thread, place, [&] {
      return fmt::format("{} bytes at shared byte {} belong to the barrier at {}", bytes, address, barrier);
    });
  }
  return block.shared() + address;
}

[[noreturn]] void fail_conflict(Block& block, int thread, Place place, bool is_write) {
  const Conflict& conflict = block.checker().conflict();
  block.fail(
      thread, place,
      [&] {
        if (conflict.kind == Conflict::Kind::unwritten) {
          return fmt::format("uninitialised read: nobody has written shared byte {}", conflict.address);
        }
        if (conflict.kind == Conflict::Kind::proxy) {
          return fmt::format(
              "shared byte {} was stored by {}, {}: products and bulk copies see a thread's stores "
              "only after its fence_async_shared (fence.proxy.async)",
              conflict.address, conflict.other_agent, describe(conflict.other));
        }
        return fmt::format("race: the {} of shared byte {} is not ordered after the {} by {}, {}{}",
                           is_write ? "write" : "read", conflict.address,
                           conflict.other_is_write ? "write" : "read", conflict.other_agent,
                           describe(conflict.other), conflict.in_flight ? ", which is still in flight" : "");
      },
      conflict.other.line());
}

namespace {

void shared_load(void* destination, unsigned address, int bytes, int site) {
  Block& block = Block::current();
  const Place place(Primitive::shared_load, site);
  check_size(block, bytes, 4, place);
  const std::byte* source = shared_at(block, block.thread(), address, bytes, place);
  if (!block.checker().read(address, bytes, block.thread(), place)) {
    fail_conflict(block, block.thread(), place, false);
  }
  std::memcpy(destination, source, bytes);
}

void shared_store(unsigned address, const void* source, int bytes, int site) {
  Block& block = Block::current();
  const Place place(Primitive::shared_store, site);
  check_size(block, bytes, 4, place);
  std::byte* destination = shared_at(block, block.thread(), address, bytes, place);
  if (!block.checker().write(address, bytes, block.thread(), place)) {
    fail_conflict(block, block.thread(), place, true);
  }
  std::memcpy(destination, source, bytes);
}

void load_matrix(unsigned* registers, unsigned address, int transposed, int site) {
  struct Operands {
    unsigned* registers;
    unsigned address;
  } operands{registers, address};
  Block& block = Block::current();
  const Place place(Primitive::load_matrix_x4, site);
  block.collective(place, operands, [&](Operands* const lanes[32]) {
    const int first = block.thread() & ~31;
    const std::byte* rows[32];
    unsigned* destinations[32];
    for (int lane = 0; lane < 32; ++lane) {
      rows[lane] = shared_at(block, first + lane, lanes[lane]->address, 16, place);
      destinations[lane] = lanes[lane]->registers;
      if (!block.checker().read_by_warp(lanes[lane]->address, first + lane, place)) {
        fail_conflict(block, first + lane, place, false);
      }
    }
    load_matrix_x4(rows, transposed != 0, destinations);
  });
}

// --- global memory

}  // namespace

void check_global_alignment(Block& block, const void* address, int bytes, Place place) {
  if (reinterpret_cast<uintptr_t>(address) % bytes == 0) return;
  block.fail(place, [&] {
    return fmt::format("misaligned: {} bytes at global address {}, expected a multiple of {}", bytes,
                       fmt::ptr(address), bytes);
  });
}

namespace {

void check_global_read(Block& block, const void* address, int bytes, Place place) {
  check_global_alignment(block, address, bytes, place);
  if (block.global().may_read(address, bytes)) return;
  block.fail(place, [&] { return "global memory: " + block.global().read_fault(address, bytes); });
}

void global_load(void* destination, const void* address, int bytes, int site) {
  Block& block = Block::current();
  const Place place(Primitive::global_load, site);
  check_size(block, bytes, 1, place);
  check_global_read(block, address, bytes, place);
  std::memcpy(destination, address, bytes);
}

void global_store(void* address, const void* source, int bytes, int site) {
  Block& block = Block::current();
  const Place place(Primitive::global_store, site);
  check_size(block, bytes, 2, place);
  check_global_alignment(block, address, bytes, place);
  const uint64_t writer = block.global_thread(block.thread());
  if (!block.global().note_write(address, bytes, writer)) {
    block.fail(place, [&] {
      const GlobalMemory::WriteFault fault = block.global().write_fault(address, bytes, writer);
      return "global memory: " + fault.message +
             (fault.other_writer < 0 ? "" : " by " + block.describe_global_thread(fault.other_writer));
    });
  }
  std::memcpy(address, source, bytes);
}

int global_add(int* address, int value, int site) {
  Block& block = Block::current();
  const Place place(Primitive::global_add, site);
  check_global_alignment(block, address, sizeof *address, place);
  if (const std::string fault = block.global().add_fault(address, sizeof *address); !fault.empty()) {
    block.fail(place, [&] { return "global memory: " + fault; });
  }
  return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}

void global_sum(float* address, const float* values, int count, int site) {
  Block& block = Block::current();
  const Place place(Primitive::global_sum, site);
  const int bytes = count * static_cast<int>(sizeof *address);
  check_global_alignment(block, address, bytes, place);
  if (const std::string fault = block.global().sum_fault(address, bytes); !fault.empty()) {
    block.fail(place, [&] { return "global memory: " + fault; });
  }
  for (int i = 0; i < count; ++i) std::atomic_ref<float>(address[i]).fetch_add(values[i]);
}

// Blocks start in order, so that one which waits for an earlier one waits for a block that runs or is done.
void global_wait(const int* address, int least, int site) {
  Block& block = Block::current();
  const Place place(Primitive::global_wait, site);
  check_global_read(block, address, sizeof *address, place);
  constexpr auto patience = std::chrono::seconds(30);
  const auto start = std::chrono::steady_clock::now();
  while (__atomic_load_n(address, __ATOMIC_SEQ_CST) < least) {
    if (std::chrono::steady_clock::now() - start > patience) {
      block.fail(place, [&] {
        return fmt::format("has waited 30 s for a {} where {} stands: nobody ends that turn", least,
                           __atomic_load_n(address, __ATOMIC_SEQ_CST));
      });
    }
    std::this_thread::yield();
  }
}

float unpack(unsigned element, int element_type) {
  return element_type == 0 ? float_from_fp16(static_cast<uint16_t>(element))
                           : float_from_bf16(static_cast<uint16_t>(element));
}

// --- asynchronous copies

void land(Block& block, AsyncCopy& copy) {
  std::byte* destination = block.shared() + copy.destination;
  if (copy.source) {
    std::memcpy(destination, copy.source, 16);
  } else {
    std::memset(destination, 0, 16);
  }
  copy.landed = true;
}

void copy_async_16(unsigned destination, const void* source, int bytes, int site) {
  Block& block = Block::current();
  const Place place(Primitive::copy_async_16, site);
  if (bytes != 0 && bytes != 16) {
    block.fail(place, [&] { return fmt::format("{} bytes of source, expected 0 (zeros) or 16", bytes); });
  }
  std::byte* target = shared_at(block, block.thread(), destination, 16, place);
  if (bytes == 16) check_global_read(block, source, 16, place);
  if (!block.checker().write(destination, 16, block.thread(), place, true)) {
    fail_conflict(block, block.thread(), place, true);
  }
  AsyncCopy copy{destination, bytes == 16 ? source : nullptr, false};
  std::memset(target, 0xff, 16);  // until it lands, NaN
  if (!block.copy_is_late()) land(block, copy);
  block.copies().copies.push_back(copy);
}

void copy_async_commit(int) {
  CopyQueue& queue = Block::current().copies();
  queue.committed.push_back(queue.copies.size());
}

void copy_async_wait(int groups_in_flight, int site) {
  Block& block = Block::current();
  CopyQueue& queue = block.copies();
  if (groups_in_flight < 0) {
    block.fail(Place(Primitive::copy_async_wait, site),
               [&] { return fmt::format("{} groups in flight, expected 0 or more", groups_in_flight); });
  }
  if (queue.committed.size() <= static_cast<size_t>(groups_in_flight)) return;
  const size_t groups = queue.committed.size() - groups_in_flight;
  const size_t finished = queue.committed[groups - 1];
  for (size_t i = 0; i < finished; ++i) {
    if (!queue.copies[i].landed) land(block, queue.copies[i]);
    block.checker().copy_landed(queue.copies[i].destination, block.thread());
  }
  queue.copies.erase(queue.copies.begin(), queue.copies.begin() + finished);
  queue.committed.erase(queue.committed.begin(), queue.committed.begin() + groups);
  for (size_t& end : queue.committed) end -= finished;
}

// --- matrix products

void matrix_multiply_16x8x16(float* d, const unsigned* a, unsigned b0, unsigned b1, int element_type,
                             int site) {
  MatrixOperands operands{d, a, {b0, b1}};
  Block& block = Block::current();
  const Place place(Primitive::matrix_multiply_16x8x16, site);
  if (element_type != 0 && element_type != 1) {
    block.fail(place,
               [&] { return fmt::format("element type {}, expected 0 (fp16) or 1 (bf16)", element_type); });
  }
  block.collective(place, operands, [&](MatrixOperands* const lanes[32]) {
    multiply_16x8x16(lanes, static_cast<ElementType>(element_type));
  });
}

unsigned pack_two(float low, float high, int element_type) {
  return element_type == 0 ? fp16_from_float(low) | static_cast<unsigned>(fp16_from_float(high)) << 16
                           : bf16_from_float(low) | static_cast<unsigned>(bf16_from_float(high)) << 16;
}

float exp2_of(float value) {
  return std::exp2(value);
}
float log2_of(float value) {
  return std::log2(value);
}

}  // namespace

// A primitive without an emulation would be a null pointer that generated code calls.
#pragma GCC diagnostic error "-Wmissing-field-initializers"
const SimulatorInterface simulator_interface = {
    .thread_index = thread_index,
    .block_index = block_index,
    .grid_blocks = grid_blocks,
    .cluster_rank = cluster_rank,
    .shared_base = shared_base,
    .block_barrier = block_barrier,
    .cluster_barrier = cluster_barrier,
    .warp_barrier = warp_barrier,
    .shuffle_xor = shuffle_xor,
    .warp_any = warp_any,
    .warp_ballot = warp_ballot,
    .uniform = uniform,
    .named_barrier_wait = named_barrier_wait,
    .named_barrier_arrive = named_barrier_arrive,
    .shared_load = shared_load,
    .shared_store = shared_store,
    .load_matrix_x4 = load_matrix,
    .barrier_initialize = barrier_initialize,
    .fence_barrier_initialization = fence_barrier_initialization,
    .barrier_arrive = barrier_arrive,
    .barrier_arrive_expecting = barrier_arrive_expecting,
    .barrier_wait = barrier_wait,
    .map_to_block = map_to_block,
    .barrier_arrive_in_cluster = barrier_arrive_in_cluster,
    .global_load = global_load,
    .global_store = global_store,
    .global_add = global_add,
    .global_sum = global_sum,
    .global_wait = global_wait,
    .copy_async_16 = copy_async_16,
    .copy_async_commit = copy_async_commit,
    .copy_async_wait = copy_async_wait,
    .tensor_load = tensor_load,
    .tensor_load_multicast = tensor_load_multicast,
    .matrix_multiply_16x8x16 = matrix_multiply_16x8x16,
    .warpgroup_fence = warpgroup_fence,
    .warpgroup_multiply = warpgroup_multiply,
    .warpgroup_commit = warpgroup_commit,
    .warpgroup_wait = warpgroup_wait,
    .set_registers = set_registers,
    .store_matrix_x4 = store_matrix,
    .fence_async_shared = fence_async_shared,
    .bulk_load = bulk_load,
    .bulk_reduce_add = bulk_reduce_add,
    .bulk_commit = bulk_commit,
    .bulk_wait = bulk_wait,
    .pack_two = pack_two,
    .unpack = unpack,
    .exp2 = exp2_of,
    .log2 = log2_of,
};

}  // namespace tilewright::simulator
