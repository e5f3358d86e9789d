// Clusters: who is who, what reaches another block, and what must be waited for.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "simulator/tensor_map.h"
#include "tests/simulator_support.h"

namespace tilewright::simulator {
namespace {

using Simulator = const SimulatorInterface&;

TestLaunch pair_of_blocks(uint64_t seed = 0) {
  return {.warps = 4, .grid = 2, .cluster = 2, .shared_memory = 3072, .seed = seed};
}

TEST(Clusters, ThreadsKnowTheirPlace) {
  for (int cluster : {1, 2, 4}) {
    std::vector<std::array<int, 4>> places(8 * 128);
    expect_ok(run_body(
        [&](Simulator s) {
          places[s.block_index() * 128 + s.thread_index()] = {s.thread_index(), s.block_index(),
                                                              s.cluster_rank(), s.grid_blocks()};
        },
        {.warps = 4, .grid = 8, .cluster = cluster, .seed = 3, .os_threads = 2}));
    for (int i = 0; i < 8 * 128; ++i)
      EXPECT_EQ(places[i], (std::array{i % 128, i / 128, i / 128 % cluster, 8})) << i;
  }
}

TEST(Clusters, SharedMemoryIsEachBlocksOwn) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    int found[2] = {};
    expect_ok(run_body(
        [&](Simulator s) {
          const unsigned mine = s.shared_base() + 64;
          const int value = 5 + s.cluster_rank();
          if (s.thread_index() == 0) s.shared_store(mine, &value, 4, 1);
          s.block_barrier(2);
          if (s.thread_index() == 77) s.shared_load(&found[s.cluster_rank()], mine, 4, 3);
        },
        pair_of_blocks(seed)));
    EXPECT_EQ(found[0], 5);
    EXPECT_EQ(found[1], 6);
  }
}

// --- boxes for both blocks

constexpr unsigned full = 0, empty = 8, tile = 1024;
constexpr int rows = 8, box_bytes = rows * 128;

/// What each step of the exchange below does wrong.
struct Defects {
  bool meet_at_start = true, meet_at_end = true, wait = true, release = true, wait_for_release = true;
  int expected = 2 * box_bytes, arrivals = 2, blocks = 3;
};

/// Block r brings box r of two for both blocks, which look at them and let go; twice.
Report exchange(uint64_t seed, const Defects& defects = {}, std::vector<uint16_t>* found = nullptr) {
  alignas(16) static uint16_t data[2 * rows * 64];
  for (size_t i = 0; i < sizeof data / 2; ++i) data[i] = static_cast<uint16_t>(i + 1);
  SimulatedTensorMap tensor{.base = data, .element_bytes = 2};
  const int64_t extents[4] = {64, 2 * rows, 1, 1}, strides[3] = {128, sizeof data, sizeof data};
  const int box[4] = {64, rows, 1, 1};
  std::copy(extents, extents + 4, tensor.extents);
  std::copy(strides, strides + 3, tensor.strides);
  std::copy(box, box + 4, tensor.box);
  alignas(64) unsigned char map[128];
  encode(tensor, map);
  TestLaunch launch = pair_of_blocks(seed);
  launch.shared_memory = tile + 2 * box_bytes;
  launch.buffers = {{data, sizeof data, "tensor"}};
  if (found) found->assign(2 * 2 * rows * 64, 0);
  return run_body(
      [&](Simulator s) {
        const int thread = s.thread_index(), rank = s.cluster_rank();
        const unsigned base = s.shared_base();
        if (thread == 0) {
          s.barrier_initialize(base + full, 1, 1);
          s.barrier_initialize(base + empty, defects.arrivals, 1);
          s.fence_barrier_initialization(2);
        }
        if (defects.meet_at_start) s.cluster_barrier(3);
        if (!defects.meet_at_start) s.block_barrier(3);
        for (int round = 0; round < 2; ++round) {
          if (thread == 0) {
            if (round == 1 && defects.wait_for_release) s.barrier_wait(base + empty, 0, 4);
            s.barrier_arrive_expecting(base + full, defects.expected, 5);
            const int place[4] = {0, rank * rows, 0, 0};
            s.tensor_load_multicast(base + tile + rank * box_bytes, map, base + full, place, 4,
                                    defects.blocks, 6);
          }
          if (thread < 32 || thread >= 64) continue;
          if (defects.wait) s.barrier_wait(base + full, round, 7);
          for (int at = thread - 32; at < 2 * box_bytes / 4; at += 32) {
            uint16_t pair[2];
            s.shared_load(pair, base + tile + 4 * at, 4, 8);
            if (found) std::memcpy(&(*found)[rank * 2 * rows * 64 + 2 * at], pair, 4);
          }
          s.warp_barrier(~0u, 9);
          if (defects.release && thread - 32 < 2)
            s.barrier_arrive_in_cluster(s.map_to_block(base + empty, thread - 32, 10), 11);
        }
        if (defects.meet_at_end) s.cluster_barrier(12);
      },
      launch);
}

TEST(Clusters, BoxesReachBothBlocks) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<uint16_t> found;
    expect_ok(exchange(seed, {}, &found));
    for (int rank = 0; rank < 2; ++rank)
      for (int row = 0; row < 2 * rows; ++row)
        for (int column = 0; column < 64; ++column)
          ASSERT_EQ(found[rank * 2 * rows * 64 + row * 64 + ((column / 8) ^ (row % 8)) * 8 + column % 8],
                    row * 64 + column + 1)
              << "rank " << rank << " row " << row << " column " << column;
  }
}

TEST(Clusters, WhatIsLeftOutIsFoundWithEverySeed) {
  const struct {
    Defects defects;
    const char* message;
  } cases[] = {
      {{.meet_at_start = false}, "barrier at shared byte"},
      {{.meet_at_end = false}, "the block of rank"},
      {{.wait = false}, "shared_load at line 8"},
      {{.release = false}, " lacks 2 of 2 arrivals"},
      {{.wait_for_release = false}, ""},
      {{.expected = box_bytes}, ""},  // any of several, depending on who is first
      {{.expected = 2 * box_bytes + 128}, "lacks 0 of 1 arrivals and 128 bytes"},
      {{.arrivals = 3}, "lacks 1 of 3 arrivals"},
      {{.arrivals = 1}, ""},
      {{.blocks = 1}, ""},
      {{.blocks = 7}, "expected some of the 2 lowest bits"},
      {{.blocks = 0}, "expected some of the 2 lowest bits"},
  };
  for (const auto& [defects, message] : cases)
    for (uint64_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(seed);
      expect_fault(exchange(seed, defects), {message});
    }
}

// --- faults of single calls

struct Fault {
  const char* name;
  void (*body)(Simulator, int thread, int rank);
  const char* message;
};

class ClusterFault : public testing::TestWithParam<Fault> {};

TEST_P(ClusterFault, IsReported) {
  for (uint64_t seed : {0, 1, 5}) {
    expect_fault(run_body([](Simulator s) { GetParam().body(s, s.thread_index(), s.cluster_rank()); },
                          pair_of_blocks(seed)),
                 {GetParam().message});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Each, ClusterFault,
    testing::Values(Fault{"RankOutside", [](Simulator s, int, int) { s.map_to_block(s.shared_base(), 2, 1); },
                          "rank 2 in a cluster of 2 blocks"},
                    Fault{"StoreToAnotherBlock",
                          [](Simulator s, int thread, int rank) {
                            if (thread == 0)
                              s.shared_store(s.map_to_block(s.shared_base(), rank ^ 1, 1), &rank, 4, 2);
                          },
                          "shared_store at line 2: out of bounds"},
                    Fault{"LocalArrivalAtAnotherBlock",
                          [](Simulator s, int thread, int rank) {
                            if (thread == 0) s.barrier_initialize(s.shared_base(), 1, 1);
                            s.cluster_barrier(2);
                            if (thread == 0)
                              s.barrier_arrive(s.map_to_block(s.shared_base(), rank ^ 1, 3), 4);
                          },
                          "barrier_arrive at line 4: out of bounds"},
                    Fault{"NoBarrierThere",
                          [](Simulator s, int, int rank) {
                            s.barrier_arrive_in_cluster(s.map_to_block(s.shared_base(), rank ^ 1, 1), 2);
                          },
                          "no initialised barrier"},
                    Fault{"DifferentMeetings",
                          [](Simulator s, int, int rank) { s.cluster_barrier(1 + rank); },
                          "mismatched barriers: other threads of the cluster wait at cluster_barrier"},
                    Fault{"OneThreadStaysAway",
                          [](Simulator s, int thread, int rank) {
                            if (thread != 9 || rank != 1) s.cluster_barrier(1);
                          },
                          "deadlock"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Clusters, ABlockMeetsItselfAlone) {
  // The other block's barrier is none of ours: both wait as often as they like.
  expect_ok(run_body(
      [](Simulator s) {
        for (int i = 0; i < 3 + s.cluster_rank(); ++i) s.block_barrier(1);
        for (int i = 0; i < 3 + s.cluster_rank(); ++i) s.named_barrier_wait(1, 128, 2);
      },
      pair_of_blocks(7)));
}

TEST(Clusters, RegistersAreABlocksOwn) {
  // 512 threads are launched with 128 each; what one block releases the other cannot take.
  TestLaunch launch = pair_of_blocks(2);
  launch.warps = 16;
  expect_fault(run_body(
                   [](Simulator s) {
                     if (s.cluster_rank() == 0) s.set_registers(24, 0, 1);
                     if (s.cluster_rank() == 1 && s.thread_index() < 128) s.set_registers(160, 1, 2);
                   },
                   launch),
               {"deadlock", "set_registers at line 2"});
}

TEST(Clusters, LaunchesThatCannotBe) {
  const KernelBody nothing = [](Simulator) {};
  expect_fault(run_body(nothing, {.warps = 4, .grid = 3, .cluster = 2}),
               {"clusters of 2 blocks in a grid of 3"});
  expect_fault(run_body(nothing, {.warps = 4, .grid = 2, .cluster = 0}), {"clusters of 0 blocks"});
  expect_fault(run_body(nothing, {.warps = 1, .grid = 2, .cluster = 2}), {"multiples of 128"});
  expect_fault(run_body(nothing, {.warps = 20, .grid = 2, .cluster = 2}), {"up to 1024 a cluster"});
}

}  // namespace
}  // namespace tilewright::simulator
