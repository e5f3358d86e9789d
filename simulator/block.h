// One block on one OS thread: its threads as fibers, their meeting points, its shared memory. Or the blocks
// of one cluster together: threads count through all of them then, and the shared memory of the block of rank
// r lies from r times `shared_stride()` on.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "simulator/barriers.h"
#include "simulator/fiber.h"
#include "simulator/global_memory.h"
#include "simulator/place.h"
#include "simulator/products.h"
#include "simulator/race_checker.h"
#include "simulator/random.h"
#include "simulator/simulator.h"
#include "simulator/tensor_copy.h"
#include "simulator/warpgroups.h"

namespace tilewright::simulator {

/// A 16-byte copy from global to shared memory between its issue and its wait.
struct AsyncCopy {
  uint32_t destination = 0;
  const void* source = nullptr;  // null: zeros
  bool landed = false;           // the bytes are there, but nobody may rely on it yet
};

/// Asynchronous copies of one thread, oldest first; the first `committed.back()` of them belong to groups.
struct CopyQueue {
  std::vector<AsyncCopy> copies;
  std::vector<size_t> committed;  // end of each group, as an index into `copies`
};

/// A sum of floats from shared into global memory between its issue and the wait for it.
struct BulkReduction {
  float* destination = nullptr;
  uint32_t source = 0;
  int floats = 0;
  uint32_t number = 0;        // the race checker's
  bool committed = false;     // the last of its group
  bool read = false;          // a wait said so: shared memory may be written again
  bool landed = false;        // the sums are there, but nobody may rely on it yet
  std::vector<float> values;  // between the two
};

/// Adds up what was read, if that has not happened yet.
void land(BulkReduction& reduction);

class Block {
 public:
  /// Threads: a multiple of 32 up to 1024. Throws Error(environment) if the stacks cannot be had.
  Block(const Launch& launch, GlobalMemory& global);

  /// Runs block (or cluster) `index` from start to end. False: a fault was found, see report(); the object is
  /// then of no more use.
  bool run(int64_t index);
  const Report& report() const { return report_; }

  // --- What follows is called from the block's own fibers.

  /// The block whose fiber runs on this OS thread.
  static Block& current() { return *current_; }
  static bool on_fiber() { return current_ != nullptr; }
  int thread() const { return running_; }
  int64_t index() const { return index_ * launch_.cluster + rank(); }
  int64_t grid() const { return launch_.grid; }
  int threads() const { return launch_.threads; }  // of a block
  int cluster() const { return launch_.cluster; }
  /// Of the running thread's block in its cluster, and of another thread's.
  int rank() const { return rank_of(running_); }
  int rank_of(int thread) const { return thread / launch_.threads; }
  std::byte* shared() { return shared_.data(); }
  int shared_bytes() const { return launch_.shared_memory; }  // of a block
  uint32_t shared_stride() const { return shared_stride_; }
  /// Where the running thread's block has its shared memory.
  uint32_t shared_base() const { return static_cast<uint32_t>(rank()) * shared_stride_; }
  /// The part of it that the descriptors of products, which hold 18 bits of an address, leave out.
  uint32_t descriptor_base() const { return shared_base() & ~0x3ffffu; }
  /// Whether a block of the cluster has threads left.
  bool block_lives(int rank) const { return blocks_[rank].alive > 0; }
  RaceChecker& checker() { return checker_; }
  GlobalMemory& global() { return global_; }
  CopyQueue& copies() { return threads_[running_].copies; }
  /// Of the running thread, oldest first.
  std::vector<BulkReduction>& bulk_reductions() { return threads_[running_].bulk; }
  /// Whether an asynchronous copy issued now stays in flight until its thread waits.
  bool copy_is_late();
  uint64_t global_thread(int thread) const { return index_ * threads_.size() + thread; }
  std::string describe_global_thread(uint64_t thread) const;

  void block_barrier(Place place);
  /// Of all threads of the cluster.
  void cluster_barrier(Place place);
  void warp_barrier(uint32_t mask, Place place);

  MemoryBarriers& memory_barriers() { return memory_barriers_; }
  NamedBarrier& named_barrier(int id) { return blocks_[rank()].named_barriers[id]; }
  Warpgroups& warpgroups() { return warpgroups_; }
  /// Sleeps among `waiters` until somebody wakes them.
  void sleep(Waiters& waiters, Place place);
  /// The same from within a collective: the warp sleeps.
  void sleep_in_collective(Waiters& waiters, Place place);
  /// Goes on after others had a turn.
  void yield();
  void wake_all(Waiters& waiters);
  /// Wakes those who wait for the barrier if its phase is over now.
  void settle(MemoryBarrier& barrier);
  /// Copies in flight land at once, or later while threads wait.
  void start(const TensorCopy& copy);

  /// All lanes of the warp meet; the last one runs `execute(operands of the 32 lanes)` for all of them.
  template <class Operands, class Execute>
  void collective(Place place, Operands& operands, Execute&& execute) {
    void* const* lanes = arrive(place, &operands);
    if (!lanes) return;  // another lane came last and has done the work
    Operands* typed[32];
    for (int lane = 0; lane < 32; ++lane) typed[lane] = static_cast<Operands*>(lanes[lane]);
    execute(typed);
    depart();
  }

  /// One past the running fiber's stack.
  std::byte* stack_end() const { return stacks_.end_of(running_); }
  /// The running fiber has raised a signal.
  [[noreturn]] void fail_crashed(int signal, const void* address);

  /// Ends the launch with a fault of the running thread, or of `thread`. `describe` gives the text; nothing
  /// else of the caller's frame is destroyed: control never comes back to the fiber.
  template <class Describe>
  [[noreturn]] void fail(int thread, Place place, Describe&& describe, int other_line = 0) {
    record(thread, place, describe(), other_line);
    abandon();
  }
  template <class Describe>
  [[noreturn]] void fail(Place place, Describe&& describe, int other_line = 0) {
    fail(running_, place, std::forward<Describe>(describe), other_line);
  }

 private:
  enum class State : uint8_t { ready, in_collective, in_warp_barrier, in_block_barrier, asleep, exited };
  struct Thread {
    FiberContext context;
    State state = State::ready;
    Place place;        // where it waits
    uint32_t mask = 0;  // of its warp barrier
    CopyQueue copies;
    std::vector<BulkReduction> bulk;
  };
  struct Warp {
    uint32_t ready = 0;    // lanes that can run
    uint32_t arrived = 0;  // lanes at the collective
    Place place;           // of the collective
    void* operands[32];
  };
  /// What each block of a cluster has for itself.
  struct OneBlock {
    int alive = 0;
    int at_barrier = 0;
    Place barrier_place;
    std::array<NamedBarrier, 16> named_barriers;  // [0] is the block barrier's, unused
  };

  static void fiber_main();
  void exit_thread();
  void wait(State state, Place place);
  void wake(int thread);
  void run_another();
  void sleep_among(Waiters& waiters, State state, Place place);
  void land_tensor_copies();
  void land_tensor_copy(size_t index);
  void check_block_end();
  int choose_warp();
  void meet(int& arrived, Place& meeting_place, Place place, const char* whose, int first, int threads);
  void* const* arrive(Place place, void* operands);
  void depart();
  [[noreturn]] void fail_divergence(Place place);
  [[noreturn]] void fail_stuck();
  std::string describe_warp(int warp) const;
  void record(int thread, Place place, const std::string& what, int other_line);
  [[noreturn]] void abandon();

  // A fiber never moves to another OS thread, so code may keep the address of this over a switch.
  static inline thread_local constinit Block* current_ = nullptr;

  const Launch& launch_;
  GlobalMemory& global_;
  FiberStacks stacks_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  uint32_t shared_stride_;
  std::vector<std::byte> shared_;
  RaceChecker checker_;
  MemoryBarriers memory_barriers_;
  std::vector<OneBlock> blocks_;
  Warpgroups warpgroups_;
  std::vector<TensorCopy> tensor_copies_;  // in flight
  Random random_;
  FiberContext outside_;  // of run()
  int64_t index_ = 0;
  int running_ = 0;
  int alive_ = 0;
  int at_cluster_barrier_ = 0;
  Place cluster_barrier_place_;
  uint32_t ready_warps_ = 0;
  Report report_;
};

}  // namespace tilewright::simulator
