// What the backward pass moves on Hopper: matrices to shared memory, plain copies there, sums from there into
// global memory; and the fence between a thread's stores and what reads behind its back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/simulator_support.h"

namespace tilewright::simulator {
namespace {

constexpr unsigned barrier = 0, tile = 1024;
constexpr int shared_bytes = 16384;

struct alignas(16) Floats {
  float values[256];
};

TestLaunch launch(std::vector<Buffer> buffers, uint64_t seed = 0, int warps = 1) {
  return {.warps = warps, .shared_memory = shared_bytes, .buffers = std::move(buffers), .seed = seed};
}

Buffer sums(Floats& floats) {
  return {.data = &floats, .bytes = sizeof floats, .name = "sums", .sums = true};
}

TEST(StoreMatrix, PutsEveryElementWhereTheManualSays) {
  for (const bool transposed : {false, true}) {
    uint16_t rows[32][8];
    const KernelBody body = [&](const SimulatorInterface& simulator) {
      const int lane = simulator.thread_index();
      unsigned registers[4];
      // Matrix m, element [r][c] is 64 m + 8 r + c; a lane holds [lane / 4][lane % 4 * 2 + {0, 1}].
      for (unsigned m = 0; m < 4; ++m) {
        const unsigned first = 64 * m + 8 * (lane / 4) + lane % 4 * 2;
        registers[m] = first | (first + 1) << 16;
      }
      simulator.store_matrix_x4(tile + 16 * lane, registers, transposed, 1);
      simulator.warp_barrier(0xffffffffu, 2);
      simulator.shared_load(rows[lane], tile + 16 * lane, 16, 3);
    };
    expect_ok(run_body(body, launch({})));
    for (int row = 0; row < 32; ++row) {
      for (int column = 0; column < 8; ++column) {
        const int m = row / 8, r = transposed ? column : row % 8, c = transposed ? row % 8 : column;
        EXPECT_EQ(rows[row][column], 64 * m + 8 * r + c);
      }
    }
  }
}

/// A kernel of one warp: 512 bytes of global memory to shared memory, added to `sums` twice in two groups.
struct Steps {
  bool fence = true, commit = true, wait_before_store = true, wait_at_end = true, meet = true;
  bool one_group_may_read = false;
};

Report run_sums(const Steps& steps, Floats& from, Floats& to, uint64_t seed) {
  const KernelBody body = [&](const SimulatorInterface& simulator) {
    const int lane = simulator.thread_index();
    if (lane == 0) {
      simulator.barrier_initialize(barrier, 1, 1);
      simulator.fence_barrier_initialization(2);
    }
    simulator.block_barrier(3);
    if (lane == 0) {
      simulator.barrier_arrive_expecting(barrier, 512, 4);
      simulator.bulk_load(tile, &from, 512, barrier, 5);
    }
    simulator.barrier_wait(barrier, 0, 6);
    if (lane == 0) {
      simulator.bulk_reduce_add(to.values, tile, 512, 7);
      simulator.bulk_commit(8);
      if (steps.wait_before_store) simulator.bulk_wait(steps.one_group_may_read, 1, 9);
    }
    simulator.warp_barrier(0xffffffffu, 10);
    float mine[4];
    simulator.shared_load(mine, tile + 16 * lane, 16, 11);
    for (float& value : mine) value *= 2;
    simulator.shared_store(tile + 16 * lane, mine, 16, 12);
    if (steps.fence) simulator.fence_async_shared(13);
    if (steps.meet) simulator.warp_barrier(0xffffffffu, 14);
    if (lane == 0) {
      simulator.bulk_reduce_add(to.values, tile, 512, 15);
      if (steps.commit) simulator.bulk_commit(16);
      if (steps.wait_at_end) simulator.bulk_wait(0, 0, 17);
    }
  };
  return run_body(body, launch({{&from, sizeof from, "from"}, sums(to)}, seed));
}

TEST(BulkCopies, AddWhatIsInSharedMemory) {
  for (const uint64_t seed : {0, 1, 5}) {
    Floats from, to;
    for (int i = 0; i < 256; ++i) from.values[i] = static_cast<float>(i), to.values[i] = 1000;
    expect_ok(run_sums({}, from, to, seed));
    for (int i = 0; i < 256; ++i) ASSERT_EQ(to.values[i], 1000 + (i < 128 ? 3 * i : 0)) << "seed " << seed;
  }
}

TEST(BulkCopies, BlocksAddToTheSameSums) {
  Floats to = {};
  const KernelBody body = [&](const SimulatorInterface& simulator) {
    const float ones[4] = {1, 1, 1, 1};
    simulator.shared_store(tile + 16 * simulator.thread_index(), ones, 16, 1);
    simulator.fence_async_shared(2);
    simulator.warp_barrier(0xffffffffu, 3);
    if (simulator.thread_index() != 0) return;
    simulator.bulk_reduce_add(to.values, tile, 512, 4);
    simulator.bulk_commit(5);
    simulator.bulk_wait(0, 0, 6);
  };
  TestLaunch many = launch({sums(to)});
  many.grid = 100;
  many.os_threads = 4;
  expect_ok(run_body(body, many));
  for (int i = 0; i < 128; ++i) ASSERT_EQ(to.values[i], 100);
}

// A wait for the reads leaves the sums in flight.
TEST(BulkCopies, SumsLandAsLateAsTheWaitForThem) {
  for (const uint64_t seed : {0, 1}) {
    Floats to = {};
    float after_reads = -1, after_all = -1;
    const KernelBody body = [&](const SimulatorInterface& simulator) {
      const bool first = simulator.thread_index() == 0;
      const float ones[4] = {1, 1, 1, 1}, twos[4] = {2, 2, 2, 2};
      const auto add = [&](const float(&values)[4]) {
        if (first) simulator.shared_store(tile, values, 16, 1);
        simulator.fence_async_shared(2);
        simulator.warp_barrier(0xffffffffu, 3);
        if (!first) return;
        simulator.bulk_reduce_add(to.values, tile, 16, 4);
        simulator.bulk_commit(5);
        simulator.bulk_wait(0, 1, 6);
      };
      add(ones);
      if (first) {
        after_reads = to.values[0];
        simulator.bulk_wait(0, 0, 7);
        after_all = to.values[0];
      }
      add(twos);
    };
    TestLaunch test = launch({sums(to)});
    test.seed = seed;
    expect_ok(run_body(body, test));
    EXPECT_EQ(after_reads, seed == 0 ? 1 : 0);
    EXPECT_EQ(after_all, 1);
    EXPECT_EQ(to.values[0], 3);
  }
}

struct BulkFault {
  const char* name;
  Steps steps;
  const char* message;
  int line, other_line;
};

class BulkFaults : public testing::TestWithParam<BulkFault> {};

TEST_P(BulkFaults, AreReported) {
  const BulkFault& fault = GetParam();
  for (const uint64_t seed : {0, 1, 5}) {
    Floats from = {}, to = {};
    const Report report = run_sums(fault.steps, from, to, seed);
    expect_fault(report, {fault.message});
    EXPECT_EQ(report.line, fault.line) << report.message;
    EXPECT_EQ(report.other_line, fault.other_line) << report.message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Hopper, BulkFaults,
    testing::Values(
        BulkFault{"no_fence", {.fence = false}, "only after its fence_async_shared", 15, 12},
        BulkFault{"lanes_do_not_meet", {.meet = false}, "race: the read", 15, 12},
        BulkFault{"no_wait_before_the_store", {.wait_before_store = false}, "race: the write", 12, 7},
        BulkFault{"a_wait_too_few", {.one_group_may_read = true}, "race: the write", 12, 7},
        BulkFault{"no_wait_at_the_end", {.wait_at_end = false}, "still reading its shared memory", 0, 0},
        BulkFault{"no_commit", {.commit = false}, "still reading its shared memory", 0, 0}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(BulkCopies, FaultsOfOneCall) {
  Floats from = {}, to = {};
  float* const read_only = from.values;
  const auto fault = [&](const KernelBody& call, std::initializer_list<std::string> parts) {
    const KernelBody body = [&](const SimulatorInterface& simulator) {
      if (simulator.thread_index() != 0) return;
      simulator.barrier_initialize(barrier, 1, 1);
      simulator.fence_barrier_initialization(2);
      const float zeros[4] = {};
      for (unsigned i = 0; i < 32; ++i) simulator.shared_store(tile + 16 * i, zeros, 16, 3);
      simulator.fence_async_shared(4);
      call(simulator);
    };
    expect_fault(run_body(body, launch({{&from, sizeof from, "from"}, sums(to)})), parts);
  };
  fault([&](const auto& s) { s.bulk_reduce_add(to.values, tile, 24, 5); }, {"24 bytes", "multiples of 16"});
  fault([&](const auto& s) { s.bulk_reduce_add(to.values + 1, tile, 32, 5); }, {"misaligned", "of 16"});
  fault([&](const auto& s) { s.bulk_reduce_add(to.values, shared_bytes - 16, 32, 5); },
        {"out of bounds", "a sum of 32 bytes"});
  fault([&](const auto& s) { s.bulk_reduce_add(read_only, tile, 32, 5); },
        {"\"from\"", "does not hold sums"});
  fault([&](const auto& s) { s.bulk_reduce_add(to.values, tile + 512, 32, 5); }, {"nobody has written"});
  fault([&](const auto& s) { s.bulk_load(tile, from.values + 252, 32, barrier, 5); }, {"past its end"});
  fault([&](const auto& s) { s.bulk_load(barrier, from.values, 32, barrier, 5); }, {"covers the barrier"});
  fault([&](const auto& s) { s.bulk_load(tile, from.values, 32, 64, 5); }, {"no initialised barrier"});
}

// Products read behind the threads' backs too.
TEST(BulkCopies, ProductsSeeStoresAfterTheFence) {
  for (const bool fence : {true, false}) {
    const KernelBody body = [&](const SimulatorInterface& simulator) {
      const unsigned ones[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};  // bf16
      for (unsigned i = 0; i < 4; ++i) {
        simulator.shared_store(tile + (simulator.thread_index() * 4 + i) * 16, ones, 16, 1);
      }
      if (fence) simulator.fence_async_shared(2);
      simulator.block_barrier(3);
      float d[4] = {};
      simulator.warpgroup_fence(4);
      simulator.warpgroup_multiply(8, d, nullptr, tile / 16, tile / 16, 0, 0, 1, 5);
      simulator.warpgroup_commit(6);
      simulator.warpgroup_wait(0, 7);
      EXPECT_EQ(d[0], 16);
    };
    const Report report = run_body(body, launch({}, 0, 4));
    if (fence) {
      expect_ok(report);
    } else {
      expect_fault(report, {"only after its fence_async_shared", "shared_store at line 1"});
    }
  }
}

}  // namespace
}  // namespace tilewright::simulator
