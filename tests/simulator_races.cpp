// Which accesses to shared memory are ordered, and which are races.
#include <gtest/gtest.h>

#include "tests/simulator_support.h"

namespace tilewright::simulator {
namespace {

constexpr unsigned all_lanes = ~0u;

void store(const SimulatorInterface& simulator, unsigned address, int site) {
  const uint32_t value = 7;
  simulator.shared_store(address, &value, 4, site);
}

void load(const SimulatorInterface& simulator, unsigned address, int site) {
  uint32_t value;
  simulator.shared_load(&value, address, 4, site);
}

void store_row(const SimulatorInterface& simulator, unsigned address, int site) {
  const uint32_t values[4] = {};
  simulator.shared_store(address, values, 16, site);
}

void load_rows(const SimulatorInterface& simulator, unsigned address, int site) {
  unsigned registers[4];
  simulator.load_matrix_x4(registers, address, 0, site);
}

// --- lanes of one warp

TEST(WarpRace, ReadAfterWriteWithoutWarpBarrier) {
  const auto body = [](bool barrier) {
    return [barrier](const SimulatorInterface& simulator) {
      const unsigned lane = simulator.thread_index();
      store(simulator, lane * 4, 10);
      if (barrier) simulator.warp_barrier(all_lanes, 11);
      load(simulator, lane == 0 ? 0 : (lane - 1) * 4, 12);
    };
  };
  expect_ok(run_body(body(true)));
  // Lane 1 reads what lane 0 wrote: without a barrier the value is there only because the lanes took turns.
  const Report report = run_body(body(false));
  expect_fault(report, {"warp 0 lane 1, shared_load at line 12", "race: the read of shared byte 0",
                        "the write by warp 0 lane 0, shared_store at line 10"});
  EXPECT_EQ(report.line, 12);
  EXPECT_EQ(report.other_line, 10);
}

TEST(WarpRace, WriteAfterReadWithoutWarpBarrier) {
  const auto body = [](bool barrier) {
    return [barrier](const SimulatorInterface& simulator) {
      const unsigned lane = simulator.thread_index();
      store(simulator, lane * 4, 10);
      simulator.warp_barrier(all_lanes, 11);
      load(simulator, (lane ^ 1) * 4, 12);
      if (barrier) simulator.warp_barrier(all_lanes, 13);
      store(simulator, lane * 4, 14);
    };
  };
  expect_ok(run_body(body(true)));
  expect_fault(run_body(body(false)), {"race", "shared_store at line 14", "shared_load at line 12"});
}

// Every reader counts, not only the last one.
TEST(WarpRace, AWriterMayBeOneOfTheReaders) {
  const Report report = run_body([](const SimulatorInterface& simulator) {
    const int lane = simulator.thread_index();
    if (lane == 0) store(simulator, 0, 10);
    simulator.warp_barrier(all_lanes, 11);
    load(simulator, 0, 12);
    simulator.shuffle_xor(0, 1, 13);  // all have read
    if (lane == 31) store(simulator, 0, 14);
  });
  expect_fault(report,
               {"lane 31, shared_store at line 14", "the read by warp 0 lane 0, shared_load at line 12"});
}

TEST(WarpRace, TwoLanesWriteOneWord) {
  expect_fault(
      run_body([](const SimulatorInterface& simulator) { store(simulator, 64, 10); }),
      {"warp 0 lane 1, shared_store at line 10", "the write by warp 0 lane 0, shared_store at line 10"});
}

// Lanes meet at a shuffle, at ldmatrix and at mma, but none of them orders memory.
TEST(WarpRace, CollectivesDoNotOrderMemory) {
  const auto body = [](auto collective) {
    return [collective](const SimulatorInterface& simulator) {
      const unsigned lane = simulator.thread_index();
      store_row(simulator, 1024 + lane * 16, 9);
      simulator.warp_barrier(all_lanes, 9);
      store(simulator, lane * 4, 10);
      collective(simulator, lane);
      load(simulator, (lane ^ 1) * 4, 12);
    };
  };
  const auto shuffle = [](const SimulatorInterface& simulator, unsigned lane) {
    simulator.shuffle_xor(lane, 1, 11);
  };
  const auto matrix = [](const SimulatorInterface& simulator, unsigned lane) {
    load_rows(simulator, 1024 + lane * 16, 11);
  };
  const auto product = [](const SimulatorInterface& simulator, unsigned) {
    float d[4] = {};
    const unsigned a[4] = {};
    simulator.matrix_multiply_16x8x16(d, a, 0, 0, 0, 11);
  };
  const auto barrier = [](const SimulatorInterface& simulator, unsigned) {
    simulator.warp_barrier(all_lanes, 11);
  };
  expect_fault(run_body(body(shuffle)), {"race", "shared_load at line 12"});
  expect_fault(run_body(body(matrix)), {"race", "shared_load at line 12"});
  expect_fault(run_body(body(product)), {"race", "shared_load at line 12"});
  expect_ok(run_body(body(barrier)));
}

// The row that a lane points at goes to all lanes: ldmatrix reads it for the whole warp.
TEST(WarpRace, LoadMatrixReadsForTheWholeWarp) {
  const auto body = [](bool barrier_before, bool barrier_after) {
    return [=](const SimulatorInterface& simulator) {
      const unsigned lane = simulator.thread_index();
      store_row(simulator, lane * 16, 10);
      if (barrier_before) simulator.warp_barrier(all_lanes, 11);
      load_rows(simulator, lane * 16, 12);  // each lane its own row
      if (barrier_after) simulator.warp_barrier(all_lanes, 13);
      store_row(simulator, lane * 16, 14);
    };
  };
  expect_ok(run_body(body(true, true)));
  expect_fault(run_body(body(false, true)),
               {"load_matrix_x4 at line 12", "race: the read", "shared_store at line 10"});
  expect_fault(run_body(body(true, false)),
               {"shared_store at line 14", "race: the write", "load_matrix_x4 at line 12"});
}

TEST(WarpRace, ALanesOwnAccessesAreOrdered) {
  expect_ok(run_body([](const SimulatorInterface& simulator) {
    const unsigned address = simulator.thread_index() * 4;
    for (int i = 0; i < 3; ++i) {
      store(simulator, address, 10);
      load(simulator, address, 11);
    }
  }));
}

// Four lanes fill one 16-byte row: neighbours in a row are not a conflict.
TEST(WarpRace, NeighbouringWordsDoNotConflict) {
  expect_ok(run_body(
      [](const SimulatorInterface& simulator) {
        store(simulator, simulator.thread_index() * 4, 10);
        load(simulator, simulator.thread_index() * 4, 11);
        store(simulator, simulator.thread_index() * 4, 12);
      },
      {.warps = 4}));
}

TEST(WarpRace, APartialBarrierOrdersItsLanesOnly) {
  // Lanes 0-15 and 16-31 meet apart. A lane reads its neighbour's word, `distance` lanes away.
  const auto body = [](unsigned distance) {
    return [distance](const SimulatorInterface& simulator) {
      const unsigned lane = simulator.thread_index();
      store(simulator, lane * 4, 8);
      simulator.warp_barrier(all_lanes, 9);
      store(simulator, lane * 4, 10);
      simulator.warp_barrier(lane < 16 ? 0xffffu : 0xffff0000u, 11);
      load(simulator, (lane ^ distance) * 4, 12);
    };
  };
  expect_ok(run_body(body(8)));
  expect_fault(run_body(body(16)), {"race", "shared_load at line 12", "shared_store at line 10"});
}

TEST(WarpRace, OrderPassesOnThroughAThirdLane) {
  // 0 and 1 meet, then 1 and 2: lane 2 comes after what lane 0 did first.
  const auto body = [](bool second) {
    return [second](const SimulatorInterface& simulator) {
      const int lane = simulator.thread_index();
      if (lane == 0) store(simulator, 0, 10);
      if (lane <= 1) simulator.warp_barrier(0b011, 11);
      if (lane == 1 || lane == 2) simulator.warp_barrier(second ? 0b110 : 1u << lane, 12);
      if (lane == 2) load(simulator, 0, 14);
    };
  };
  expect_ok(run_body(body(true)));
  // Without the second meeting lane 2 may even come before lane 0; whichever comes last is reported.
  expect_fault(run_body(body(false)), {"line 14"});
}

// --- warps of one block

TEST(BlockRace, WarpBarriersDoNotOrderWarps) {
  const auto body = [](bool block_barrier) {
    return [block_barrier](const SimulatorInterface& simulator) {
      const unsigned thread = simulator.thread_index();
      store(simulator, thread * 4, 10);
      if (block_barrier) {
        simulator.block_barrier(11);
      } else {
        simulator.warp_barrier(all_lanes, 11);
      }
      load(simulator, (thread ^ 32) * 4, 12);
    };
  };
  for (uint64_t seed = 0; seed < 10; ++seed) {
    expect_ok(run_body(body(true), {.warps = 2, .seed = seed}));
    const Report report = run_body(body(false), {.warps = 2, .seed = seed});
    // Either the other warp has not written yet, or it has and nothing orders that.
    expect_fault(report, {"shared_load at line 12"});
    EXPECT_TRUE(report.message.find("race") != std::string::npos ||
                report.message.find("uninitialised") != std::string::npos)
        << report.message;
  }
}

TEST(BlockRace, WriteAfterReadByAnotherWarp) {
  const auto body = [](bool second_barrier) {
    return [second_barrier](const SimulatorInterface& simulator) {
      const unsigned thread = simulator.thread_index();
      store(simulator, thread * 4, 10);
      simulator.block_barrier(11);
      load(simulator, (thread ^ 32) * 4, 12);
      if (second_barrier) simulator.block_barrier(13);
      store(simulator, thread * 4, 14);
    };
  };
  for (uint64_t seed = 0; seed < 10; ++seed) {
    expect_ok(run_body(body(true), {.warps = 2, .seed = seed}));
    expect_fault(run_body(body(false), {.warps = 2, .seed = seed}), {"race", "line 14", "line 12"});
  }
}

TEST(BlockRace, CheckingCanBeTurnedOff) {
  expect_ok(run_body(
      [](const SimulatorInterface& simulator) {
        store(simulator, 64, 10);
        load(simulator, 64, 11);
      },
      {.warps = 2, .check_races = false}));
}

// --- asynchronous copies

struct CopyKernel {
  bool wait = true;
  bool barrier_after_wait = true;
  bool barrier_before_refill = true;
};

// Two rounds through one buffer: copy, wait, barrier, read rows of other threads, barrier, copy again.
KernelBody copy_body(const CopyKernel& kernel, const void* source) {
  return [kernel, source](const SimulatorInterface& simulator) {
    const unsigned thread = simulator.thread_index();
    const char* row = static_cast<const char*>(source) + thread * 16;
    for (int round = 0; round < 2; ++round) {
      simulator.copy_async_16(thread * 16, row, 16, 20);
      simulator.copy_async_commit(21);
      if (kernel.wait) simulator.copy_async_wait(0, 22);
      if (kernel.barrier_after_wait) simulator.block_barrier(23);
      load_rows(simulator, (thread ^ 32) * 16, 24);
      if (kernel.barrier_before_refill) simulator.block_barrier(25);
    }
    simulator.copy_async_wait(0, 26);
  };
}

TEST(CopyRace, EachMissingStepIsFoundWithAnySeed) {
  alignas(16) const char source[64 * 16] = {};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const TestLaunch launch = {
        .warps = 2, .buffers = {{const_cast<char*>(source), sizeof source, "source"}}, .seed = seed};
    expect_ok(run_body(copy_body({}, source), launch));
    expect_fault(run_body(copy_body({.wait = false}, source), launch),
                 {"race: the read", "copy_async_16 at line 20, which is still in flight"});
    const Report no_barrier = run_body(copy_body({.barrier_after_wait = false}, source), launch);
    expect_fault(no_barrier, {"load_matrix_x4 at line 24"});
    const Report no_refill_barrier = run_body(copy_body({.barrier_before_refill = false}, source), launch);
    expect_fault(no_refill_barrier, {"race", "copy_async_16 at line 20", "load_matrix_x4 at line 24"});
  }
}

// The thread's own copy too, whatever has landed.
TEST(CopyRace, AReadOfBytesInFlight) {
  for (const uint64_t seed : {0, 1}) {
    expect_fault(run_body(
                     [](const SimulatorInterface& simulator) {
                       if (simulator.thread_index() != 0) return;
                       simulator.copy_async_16(0, nullptr, 0, 20);
                       simulator.copy_async_commit(21);
                       load(simulator, 4, 22);
                     },
                     {.seed = seed}),
                 {"shared_load at line 22", "copy_async_16 at line 20, which is still in flight"});
  }
}

TEST(CopyRace, AWriteToBytesInFlight) {
  alignas(16) const char source[16] = {};
  expect_fault(run_body(
                   [&](const SimulatorInterface& simulator) {
                     if (simulator.thread_index() != 0) return;
                     simulator.copy_async_16(0, source, 16, 20);
                     store(simulator, 8, 21);
                   },
                   {.buffers = {{const_cast<char*>(source), sizeof source, "source"}}}),
               {"shared_store at line 21", "shared byte 8", "still in flight"});
}

}  // namespace
}  // namespace tilewright::simulator
