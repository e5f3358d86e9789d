// The emulation of what the backward pass moves on Hopper: matrices to shared memory, plain copies there,
// sums from there into global memory.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "simulator/primitives.h"

namespace tilewright::simulator {

void store_matrix(unsigned address, const unsigned* registers, int transposed, int site) {
  struct Operands {
    const unsigned* registers;
    unsigned address;
  } operands{registers, address};
  Block& block = Block::current();
  const Place place(Primitive::store_matrix_x4, site);
  block.collective(place, operands, [&](Operands* const lanes[32]) {
    const int first = block.thread() & ~31;
    for (int lane = 0; lane < 32; ++lane) {
      std::byte* const row = shared_at(block, first + lane, lanes[lane]->address, 16, place);
      if (!block.checker().write(lanes[lane]->address, 16, first + lane, place)) {
        fail_conflict(block, first + lane, place, true);
      }
      for (int column = 0; column < 8; ++column) {
        // The lane that holds the element, and which half of its register.
        const int holder = transposed ? column * 4 + lane % 8 / 2 : lane % 8 * 4 + column / 2;
        const int half = transposed ? lane % 2 : column % 2;
        const uint16_t element = static_cast<uint16_t>(lanes[holder]->registers[lane / 8] >> 16 * half);
        std::memcpy(row + 2 * column, &element, 2);
      }
    }
  });
}

void fence_async_shared(int) {
  Block& block = Block::current();
  block.checker().fence_async(block.thread());
}

namespace {

void check_bulk_bytes(Block& block, int bytes, uint32_t shared, const void* global, Place place) {
  if (bytes <= 0 || bytes % 16 != 0 || shared % 16 != 0) {
    block.fail(place, [&] {
      return fmt::format("{} bytes at shared byte {}, expected multiples of 16", bytes, shared);
    });
  }
  check_global_alignment(block, global, 16, place);
}

}  // namespace

void bulk_load(unsigned destination, const void* source, int bytes, unsigned barrier, int site) {
  Block& block = Block::current();
  const Place place(Primitive::bulk_load, site);
  check_bulk_bytes(block, bytes, destination, source, place);
  check_copied_bytes(block, "a copy of ", destination, bytes, place);
  if (!block.global().may_read(source, bytes)) {
    block.fail(place, [&] { return "global memory: " + block.global().read_fault(source, bytes); });
  }
  check_shared_bounds(block, block.thread(), "a barrier of ", barrier, 8, place);
  TensorCopy copy;
  copy.destination = destination;
  copy.barrier = barrier;
  copy.thread = block.thread();
  copy.place = place;
  copy.plain = source;
  copy.plain_bytes = bytes;
  start_copy(block, copy);
}

// --- sums

namespace {

void read(Block& block, BulkReduction& reduction) {
  if (!reduction.values.empty()) return;
  reduction.values.resize(static_cast<size_t>(reduction.floats));
  std::memcpy(reduction.values.data(), block.shared() + reduction.source, 4 * reduction.values.size());
}

/// Not many sums that were read stay in flight.
void land_oldest(std::vector<BulkReduction>& queue) {
  constexpr size_t most_in_flight = 16;
  for (size_t i = 0; i + most_in_flight < queue.size(); ++i) {
    if (queue[i].read) land(queue[i]);
  }
  const auto open = std::find_if(queue.begin(), queue.end(), [](const BulkReduction& reduction) {
    return !reduction.read || !reduction.landed;
  });
  queue.erase(queue.begin(), open);
}

}  // namespace

void land(BulkReduction& reduction) {
  if (reduction.landed) return;
  for (int i = 0; i < reduction.floats; ++i) {
    std::atomic_ref<float>(reduction.destination[i])
        .fetch_add(reduction.values[static_cast<size_t>(i)], std::memory_order_relaxed);
  }
  reduction.landed = true;
  reduction.values.clear();
}

void bulk_reduce_add(float* destination, unsigned source, int bytes, int site) {
  Block& block = Block::current();
  const Place place(Primitive::bulk_reduce_add, site);
  check_bulk_bytes(block, bytes, source, destination, place);
  check_copied_bytes(block, "a sum of ", source, bytes, place);
  if (const std::string fault = block.global().sum_fault(destination, bytes); !fault.empty()) {
    block.fail(place, [&] { return "global memory: " + fault; });
  }
  BulkReduction reduction{.destination = destination, .source = source, .floats = bytes / 4};
  reduction.number = block.checker().start_bulk_read(source, bytes, block.thread(), place);
  if (reduction.number == 0) fail_conflict(block, block.thread(), place, false);
  if (!block.copy_is_late()) {
    read(block, reduction);
    land(reduction);
  }
  block.bulk_reductions().push_back(std::move(reduction));
}

void bulk_commit(int) {
  std::vector<BulkReduction>& queue = Block::current().bulk_reductions();
  if (!queue.empty()) queue.back().committed = true;
}

// A wait for the reads of shared memory leaves the sums in flight.
void bulk_wait(int groups_in_flight, int only_reads, int site) {
  Block& block = Block::current();
  std::vector<BulkReduction>& queue = block.bulk_reductions();
  if (groups_in_flight < 0) {
    block.fail(Place(Primitive::bulk_wait, site),
               [&] { return fmt::format("{} groups in flight, expected 0 or more", groups_in_flight); });
  }
  size_t end = queue.size();
  for (int groups = 0; end > 0; --end) {
    if (queue[end - 1].committed && ++groups > groups_in_flight) break;
  }
  for (size_t i = 0; i < end; ++i) {
    if (!queue[i].read) {
      if (!queue[i].landed) read(block, queue[i]);
      block.checker().finish_bulk_reads(block.thread(), queue[i].number);
      queue[i].read = true;
    }
    if (!only_reads) land(queue[i]);
  }
  land_oldest(queue);
}

}  // namespace tilewright::simulator
