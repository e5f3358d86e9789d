// Asynchronous copies: when they land, what is there before, what a group is.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/simulator_support.h"

namespace tilewright::simulator {
namespace {

struct alignas(16) Source {
  float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  Buffer buffer() { return {values, sizeof values, "source"}; }
};

// Runs the body as thread 0 alone, without the race checker: these kernels look at bytes in flight on
// purpose.
Report run_one_thread(const KernelBody& body, Source& source, uint64_t seed) {
  return run_body(
      [&](const SimulatorInterface& simulator) {
        if (simulator.thread_index() == 0) body(simulator);
      },
      {.buffers = {source.buffer()}, .seed = seed, .check_races = false});
}

float load(const SimulatorInterface& simulator, unsigned address) {
  float value;
  simulator.shared_load(&value, address, 4, 90);
  return value;
}

TEST(AsyncCopy, EarlyWithSeed0LateWithSeed1) {
  Source source;
  for (const uint64_t seed : {0, 1}) {
    float before = 0, after = 0;
    expect_ok(run_one_thread(
        [&](const SimulatorInterface& simulator) {
          const float old_values[4] = {9, 9, 9, 9};
          simulator.shared_store(32, old_values, 16, 4);
          simulator.copy_async_16(32, source.values, 16, 1);
          simulator.copy_async_commit(2);
          before = load(simulator, 36);
          simulator.copy_async_wait(0, 3);
          after = load(simulator, 36);
        },
        source, seed));
    if (seed == 0) {
      EXPECT_EQ(before, 2);
    } else {
      EXPECT_TRUE(std::isnan(before)) << "bytes in flight must be poisoned";
    }
    EXPECT_EQ(after, 2);
  }
}

TEST(AsyncCopy, OtherSeedsDraw) {
  Source source;
  int late = 0;
  for (uint64_t seed = 2; seed < 66; ++seed) {
    expect_ok(run_one_thread(
        [&](const SimulatorInterface& simulator) {
          simulator.copy_async_16(32, source.values, 16, 1);
          simulator.copy_async_commit(2);
          late += std::isnan(load(simulator, 32));
          simulator.copy_async_wait(0, 3);
        },
        source, seed));
  }
  EXPECT_GT(late, 10);
  EXPECT_LT(late, 54);
}

TEST(AsyncCopy, ZeroBytesFillWithZerosAndReadNothing) {
  Source source;
  for (const uint64_t seed : {0, 1}) {
    expect_ok(run_one_thread(
        [&](const SimulatorInterface& simulator) {
          simulator.copy_async_16(16, nullptr, 0, 1);
          simulator.copy_async_commit(2);
          simulator.copy_async_wait(0, 3);
          for (int i = 0; i < 4; ++i) EXPECT_EQ(load(simulator, 16 + 4 * i), 0);
        },
        source, seed));
  }
}

TEST(AsyncCopy, WaitLeavesTheYoungestGroupsInFlight) {
  Source source;
  expect_ok(run_one_thread(
      [&](const SimulatorInterface& simulator) {
        simulator.copy_async_16(0, source.values, 16, 1);
        simulator.copy_async_commit(2);
        simulator.copy_async_16(16, source.values + 4, 16, 3);
        simulator.copy_async_commit(4);
        simulator.copy_async_commit(5);  // an empty group counts
        simulator.copy_async_wait(2, 6);
        EXPECT_EQ(load(simulator, 0), 1);
        EXPECT_TRUE(std::isnan(load(simulator, 16)));
        simulator.copy_async_wait(1, 7);
        EXPECT_EQ(load(simulator, 16), 5);
      },
      source, 1));
}

TEST(AsyncCopy, WaitDoesNotReachAnOpenGroup) {
  Source source;
  expect_fault(run_one_thread(
                   [&](const SimulatorInterface& simulator) {
                     simulator.copy_async_16(0, source.values, 16, 1);
                     simulator.copy_async_wait(0, 2);
                     EXPECT_TRUE(std::isnan(load(simulator, 0)));
                   },
                   source, 1),
               {"warp 0 lane 0", "exits with 1 asynchronous copies still in flight"});
}

TEST(AsyncCopy, ExitWithCopiesInFlight) {
  Source source;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    expect_fault(run_one_thread(
                     [&](const SimulatorInterface& simulator) {
                       simulator.copy_async_16(0, source.values, 16, 1);
                       simulator.copy_async_16(16, source.values, 16, 1);
                       simulator.copy_async_commit(2);
                     },
                     source, seed),
                 {"exits with 2 asynchronous copies still in flight"});
  }
}

TEST(AsyncCopy, NegativeWait) {
  Source source;
  expect_fault(run_one_thread([](const SimulatorInterface& simulator) { simulator.copy_async_wait(-1, 8); },
                              source, 0),
               {"copy_async_wait at line 8", "-1 groups"});
}

}  // namespace
}  // namespace tilewright::simulator
