#include "simulator/block.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace tilewright::simulator {

Block::Block(const Launch& launch, GlobalMemory& global)
    : launch_(launch),
      global_(global),
      stacks_(launch.threads * launch.cluster),
      threads_(launch.threads * launch.cluster),
      warps_(threads_.size() / 32),
      shared_stride_(launch.cluster == 1 ? 0 : std::bit_ceil(std::max(launch.shared_memory, 1024) * 1u)),
      shared_(shared_stride_ * (launch.cluster - 1) + launch.shared_memory),
      checker_(static_cast<int>(shared_.size()), launch.threads, launch.cluster, launch.check_races),
      memory_barriers_(RaceChecker::most_barriers * launch.cluster),
      blocks_(launch.cluster),
      warpgroups_(launch.threads, launch.cluster) {}

bool Block::run(int64_t index) {
  index_ = index;
  random_ = Random(launch_.seed * 0x2545f4914f6cdd1d + static_cast<uint64_t>(index));
  std::memset(shared_.data(), 0xff, shared_.size());  // NaN in every format
  checker_.start_block();
  memory_barriers_.clear();
  std::fill(blocks_.begin(), blocks_.end(), OneBlock{.alive = launch_.threads});
  warpgroups_.start_block();
  alive_ = static_cast<int>(threads_.size());
  for (int i = 0; i < alive_; ++i) {
    prepare_fiber(threads_[i].context, stacks_.end_of(i), FiberStacks::usable_bytes, fiber_main);
    wake(i);
  }
  current_ = this;
  // Not always warp 0: what is missing after an initialisation by warp 0 shows when another goes first.
  running_ = choose_warp() * 32;
  warps_[running_ / 32].ready &= ~1u;
  switch_fiber(outside_, threads_[running_].context);
  current_ = nullptr;
  return report_.ok;
}

void Block::fiber_main() {
  Block& block = current();
  block.launch_.thunk(block.launch_.parameters);
  block.exit_thread();
}

void Block::exit_thread() {
  Thread& thread = threads_[running_];
  if (!thread.copies.copies.empty()) {
    fail(Place(), [&] {
      return fmt::format(
          "exits with {} asynchronous copies still in flight: copy_async_commit and copy_async_wait "
          "are missing",
          thread.copies.copies.size());
    });
  }
  thread.copies.committed.clear();  // empty groups
  for (BulkReduction& reduction : thread.bulk) {
    if (!reduction.read) {
      fail(Place(), [] {
        return "exits with bulk copies still reading its shared memory: bulk_commit and bulk_wait are "
               "missing";
      });
    }
    land(reduction);
  }
  thread.bulk.clear();
  if (!warpgroups_.products(running_ / 32).empty()) {
    fail(Place(), [] { return "exits with products still in flight: warpgroup_wait is missing"; });
  }
  if (--blocks_[rank()].alive == 0) check_block_end();
  --alive_;
  thread.state = State::exited;
  thread.place = Place();
  run_another();
  std::abort();  // nobody wakes a thread that has exited
}

void Block::wake(int thread) {
  threads_[thread].state = State::ready;
  warps_[thread / 32].ready |= 1u << thread % 32;
  ready_warps_ |= 1u << thread / 32;
}

void Block::wait(State state, Place place) {
  threads_[running_].state = state;
  threads_[running_].place = place;
  run_another();
}

int Block::choose_warp() {
  uint32_t candidates = ready_warps_;
  for (int skip = random_.below(std::popcount(candidates)); skip > 0; --skip) candidates &= candidates - 1;
  return std::countr_zero(candidates);
}

// The lanes of a warp take turns until all of them wait; then another warp that can run is drawn.
void Block::run_another() {
  int warp = running_ / 32;
  FiberContext& self = threads_[running_].context;
  if (warps_[warp].ready == 0) {
    ready_warps_ &= ~(1u << warp);
    if (alive_ == 0) switch_fiber(self, outside_);
    land_tensor_copies();
    if (ready_warps_ == 0) fail_stuck();
    warp = choose_warp();
  }
  const int next = warp * 32 + std::countr_zero(warps_[warp].ready);
  warps_[warp].ready &= warps_[warp].ready - 1;
  if (next == running_) return;
  running_ = next;
  ++report_.switches;
  switch_fiber(self, threads_[next].context);
}

void Block::sleep(Waiters& waiters, Place place) {
  sleep_among(waiters, State::asleep, place);
}

void Block::sleep_in_collective(Waiters& waiters, Place place) {
  sleep_among(waiters, State::in_collective, place);
}

void Block::sleep_among(Waiters& waiters, State state, Place place) {
  waiters.resize(warps_.size());
  waiters[running_ / 32] |= 1u << running_ % 32;
  wait(state, place);
}

void Block::yield() {
  wake(running_);
  run_another();
}

void Block::wake_all(Waiters& waiters) {
  for (size_t warp = 0; warp < waiters.size(); ++warp) {
    for (uint32_t lanes = std::exchange(waiters[warp], 0); lanes != 0; lanes &= lanes - 1) {
      wake(static_cast<int>(warp) * 32 + std::countr_zero(lanes));
    }
  }
}

void Block::settle(MemoryBarrier& barrier) {
  if (barrier.advance()) wake_all(barrier.waiting);
}

void Block::start(const TensorCopy& copy) {
  std::memset(shared_.data() + copy.destination, 0xff, copy.bytes());  // until it lands, NaN
  tensor_copies_.push_back(copy);
  if (!copy_is_late()) land_tensor_copy(tensor_copies_.size() - 1);
}

// Late copies land while no warp can run; the later a copy is issued the earlier it may land then. Drawn ones
// also land between two warps' turns.
void Block::land_tensor_copies() {
  while (!tensor_copies_.empty()) {
    const bool nothing_runs = ready_warps_ == 0;
    if (!nothing_runs && (launch_.seed == 1 || random_.below(4) != 0)) break;
    const int count = static_cast<int>(tensor_copies_.size());
    land_tensor_copy(launch_.seed == 1 ? count - 1 : random_.below(count));
  }
}

void Block::land_tensor_copy(size_t index) {
  const TensorCopy copy = tensor_copies_[index];
  tensor_copies_.erase(tensor_copies_.begin() + index);
  copy_to_shared(copy, shared_.data() + copy.destination);
  MemoryBarrier& barrier = *memory_barriers_.find(copy.barrier);
  barrier.bytes -= copy.bytes();
  checker_.tensor_copy_arrives(copy.id, barrier.index, barrier.phases + 1, barrier.arriving);
  settle(barrier);
}

// The last thread of a block exits: its shared memory is gone from now on.
void Block::check_block_end() {
  const uint32_t first = shared_base(), end = first + launch_.shared_memory;
  const auto into_block = [&](const TensorCopy& copy) {
    return copy.destination >= first && copy.destination < end;
  };
  if (const auto count = std::count_if(tensor_copies_.begin(), tensor_copies_.end(), into_block)) {
    const TensorCopy copy = *std::find_if(tensor_copies_.begin(), tensor_copies_.end(), into_block);
    fail(copy.thread, copy.place, [&] {
      return fmt::format("the block exits with {} tensor copies still in flight: nobody waits for them",
                         count);
    });
  }
  if (alive_ == 1 && !warpgroups_.end_fault().empty()) fail(Place(), [&] { return warpgroups_.end_fault(); });
}

bool Block::copy_is_late() {
  return launch_.seed != 0 && (launch_.seed == 1 || random_.coin());
}

void Block::block_barrier(Place place) {
  OneBlock& block = blocks_[rank()];
  const int first = rank() * launch_.threads;
  meet(block.at_barrier, block.barrier_place, place, "block", first, launch_.threads);
}

void Block::cluster_barrier(Place place) {
  meet(at_cluster_barrier_, cluster_barrier_place_, place, "cluster", 0, static_cast<int>(threads_.size()));
}

/// The threads from `first` on wait for each other; `arrived` of them do so already, at `meeting_place`.
void Block::meet(int& arrived, Place& meeting_place, Place place, const char* whose, int first, int threads) {
  if (arrived == 0) {
    meeting_place = place;
  } else if (meeting_place != place) {
    fail(
        place,
        [&] {
          return fmt::format("mismatched barriers: other threads of the {} wait at {}", whose,
                             describe(meeting_place));
        },
        meeting_place.line());
  }
  if (++arrived == threads) {
    arrived = 0;
    ++report_.barriers;
    checker_.barrier(first, threads);
    for (int i = first; i < first + threads; ++i) wake(i);
    run_another();  // the last to come gets no head start
    return;
  }
  wait(State::in_block_barrier, place);
}

void Block::warp_barrier(uint32_t mask, Place place) {
  const int first = running_ & ~31, lane = running_ & 31;
  if (!(mask >> lane & 1)) {
    fail(place, [&] { return fmt::format("the caller is not in its own mask {:#010x}", mask); });
  }
  uint32_t arrived = 1u << lane;
  for (int other = 0; other < 32; ++other) {
    const Thread& thread = threads_[first + other];
    if (thread.state != State::in_warp_barrier || (thread.mask & mask) == 0) continue;
    if (thread.mask != mask) {
      fail(
          place,
          [&] {
            return fmt::format("mask {:#010x} overlaps with mask {:#010x} of lane {}, which waits at {}",
                               mask, thread.mask, other, describe(thread.place));
          },
          thread.place.line());
    }
    arrived |= 1u << other;
  }
  if (arrived == mask) {
    checker_.warp_barrier(running_ / 32, mask);
    for (int other = 0; other < 32; ++other) {
      if (other != lane && (mask >> other & 1)) wake(first + other);
    }
    return;
  }
  threads_[running_].mask = mask;
  wait(State::in_warp_barrier, place);
}

void* const* Block::arrive(Place place, void* operands) {
  Warp& warp = warps_[running_ / 32];
  if (warp.arrived == 0) {
    warp.place = place;
  } else if (warp.place != place) {
    fail_divergence(place);
  }
  warp.operands[running_ % 32] = operands;
  warp.arrived |= 1u << running_ % 32;
  if (warp.arrived == ~0u) return warp.operands;
  wait(State::in_collective, place);
  return nullptr;
}

void Block::depart() {
  Warp& warp = warps_[running_ / 32];
  warp.arrived = 0;
  for (int thread = running_ & ~31; thread < (running_ | 31) + 1; ++thread) {
    if (thread != running_) threads_[thread].state = State::ready;
  }
  warp.ready = ~(1u << running_ % 32);
}

void Block::fail_divergence(Place place) {
  const Warp& warp = warps_[running_ / 32];
  fail(
      place,
      [&] {
        return fmt::format("divergence: {} of the same warp wait at {}", describe_lanes(warp.arrived),
                           describe(warp.place));
      },
      warp.place.line());
}

std::string Block::describe_warp(int warp) const {
  std::string text;
  uint32_t remaining = ~0u;
  while (remaining) {
    const Thread& thread = threads_[warp * 32 + std::countr_zero(remaining)];
    uint32_t same = 0;
    for (int lane = 0; lane < 32; ++lane) {
      const Thread& other = threads_[warp * 32 + lane];
      if (other.state == thread.state && other.place == thread.place) same |= 1u << lane;
    }
    remaining &= ~same;
    const bool one = std::has_single_bit(same);
    text += text.empty() ? "" : "; ";
    text += thread.state == State::exited
                ? fmt::format("{} {} exited", describe_lanes(same), one ? "has" : "have")
                : fmt::format("{} {} at {}", describe_lanes(same), one ? "waits" : "wait",
                              describe(thread.place));
  }
  return text;
}

void Block::fail_stuck() {
  // The thread to name: one that waits, in a warp whose lanes are not all at one place if there is such a
  // warp.
  int stuck = -1;
  bool diverged = false;
  for (int warp = 0; warp < static_cast<int>(warps_.size()); ++warp) {
    const Thread* const lanes = &threads_[warp * 32];
    const Thread* const waits =
        std::find_if(lanes, lanes + 32, [](const Thread& lane) { return lane.state != State::exited; });
    // Lanes that have exited are missing where the lanes of a warp meet, and nowhere else.
    const bool together = std::all_of(lanes, lanes + 32, [&](const Thread& lane) {
      if (lane.state == State::exited)
        return waits == lanes + 32 || waits->state == State::asleep ||
               waits->state == State::in_block_barrier;
      return lane.state == waits->state && lane.place == waits->place;
    });
    for (int lane = 0; lane < 32; ++lane) {
      if (lanes[lane].state == State::exited || (stuck >= 0 && (diverged || together))) continue;
      stuck = warp * 32 + lane;
      diverged = !together;
    }
  }
  fail(stuck, threads_[stuck].place, [&] {
    std::string text = diverged ? "divergence: lanes of one warp wait for each other"
                                : "deadlock: no thread of the block can go on";
    for (int warp = 0; warp < static_cast<int>(warps_.size()); ++warp) {
      text += fmt::format("\n  warp {}: {}", warp, describe_warp(warp));
    }
    return text + memory_barriers_.describe_waiting();
  });
}

void Block::fail_crashed(int signal, const void* address) {
  fail(Place(), [&] {
    const auto below = stacks_.end_of(running_) - static_cast<const std::byte*>(address);
    const auto stack = static_cast<ptrdiff_t>(FiberStacks::stack_bytes);
    const bool overflow = below > stack - 8192 && below < stack + 8192;
    return fmt::format("crashed with {} at address {}{}", sigabbrev_np(signal), fmt::ptr(address),
                       overflow ? fmt::format(": its stack of {} KiB is full", stack >> 10) : "");
  });
}

std::string Block::describe_global_thread(uint64_t thread) const {
  const uint64_t threads = static_cast<uint64_t>(launch_.threads);
  return fmt::format("block {} {}", thread / threads, describe_thread(static_cast<int>(thread % threads)));
}

void Block::record(int thread, Place place, const std::string& what, int other_line) {
  report_.ok = false;
  report_.line = place.line();
  report_.other_line = other_line;
  report_.message = fmt::format(
      "kernel {}, block {}, {}{}: {}", launch_.kernel_name, index_ * launch_.cluster + rank_of(thread),
      describe_thread(thread % launch_.threads), place == Place() ? "" : ", " + describe(place), what);
}

void Block::abandon() {
  switch_fiber(threads_[running_].context, outside_);
  std::abort();  // nothing resumes a block after a fault
}

}  // namespace tilewright::simulator
