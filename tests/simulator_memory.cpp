// Shared and global memory: bounds, alignment, bytes that nobody wrote, bytes that two threads wrote.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/simulator_support.h"

namespace tilewright::simulator {
namespace {

// --- shared memory

TEST(SharedMemory, StoresAndLoads) {
  uint32_t sum = 0;
  const Report report = run_body([&](const SimulatorInterface& simulator) {
    const unsigned lane = simulator.thread_index();
    const uint32_t value = lane * 3;
    simulator.shared_store(lane * 4, &value, 4, 1);
    simulator.warp_barrier(~0u, 2);
    uint32_t others[4];
    simulator.shared_load(others, (lane / 4 * 16 + 16) % 128, 16, 3);
    if (lane == 31) sum = others[0] + others[1] + others[2] + others[3];
  });
  expect_ok(report);
  EXPECT_EQ(sum, 0u + 3 + 6 + 9);
}

struct BadAccess {
  const char* name;
  void (*body)(const SimulatorInterface&);
  std::vector<std::string> message;
};

class SharedFault : public testing::TestWithParam<BadAccess> {};

TEST_P(SharedFault, IsReported) {
  const Report report = run_body([](const SimulatorInterface& simulator) {
    if (simulator.thread_index() == 5) GetParam().body(simulator);
  });
  expect_fault(report, {"kernel test_kernel, block 0, warp 0 lane 5"});
  for (const std::string& part : GetParam().message) expect_fault(report, {part});
}

INSTANTIATE_TEST_SUITE_P(
    Shared, SharedFault,
    testing::Values(
        BadAccess{
            "past_the_end",
            [](const SimulatorInterface& simulator) {
              const char bytes[16] = {};
              simulator.shared_store(4096, bytes, 16, 21);
            },
            {"shared_store at line 21", "out of bounds: 16 bytes at shared byte 4096", "has 4096 bytes"}},
        BadAccess{"negative",
                  [](const SimulatorInterface& simulator) {
                    char bytes[4];
                    simulator.shared_load(bytes, static_cast<unsigned>(-4), 4, 22);
                  },
                  {"shared_load at line 22", "out of bounds"}},
        BadAccess{
            "misaligned",
            [](const SimulatorInterface& simulator) {
              const char bytes[16] = {};
              simulator.shared_store(40, bytes, 16, 23);
            },
            {"shared_store at line 23", "misaligned: 16 bytes at shared byte 40, expected a multiple of 16"}},
        BadAccess{"odd_size",
                  [](const SimulatorInterface& simulator) {
                    const char bytes[16] = {};
                    simulator.shared_store(0, bytes, 12, 24);
                  },
                  {"shared_store at line 24", "12 bytes, expected a power of two from 4 to 16"}},
        BadAccess{"uninitialised",
                  [](const SimulatorInterface& simulator) {
                    char bytes[8] = {};
                    simulator.shared_store(64, bytes, 4, 25);
                    simulator.shared_load(bytes, 64, 8, 26);
                  },
                  {"shared_load at line 26", "uninitialised read: nobody has written shared byte 68"}},
        BadAccess{"copy_outside",
                  [](const SimulatorInterface& simulator) { simulator.copy_async_16(4092, nullptr, 0, 27); },
                  {"copy_async_16 at line 27", "out of bounds"}},
        BadAccess{"copy_misaligned",
                  [](const SimulatorInterface& simulator) { simulator.copy_async_16(24, nullptr, 0, 28); },
                  {"copy_async_16 at line 28", "misaligned"}},
        BadAccess{"copy_size",
                  [](const SimulatorInterface& simulator) { simulator.copy_async_16(16, nullptr, 8, 29); },
                  {"copy_async_16 at line 29", "8 bytes of source, expected 0 (zeros) or 16"}}),
    [](const auto& fault) { return fault.param.name; });

TEST(SharedMemory, LoadMatrixNamesTheLaneWhoseRowIsBad) {
  const auto body = [](unsigned bad_address) {
    return [bad_address](const SimulatorInterface& simulator) {
      const int lane = simulator.thread_index();
      const char zeros[16] = {};
      simulator.shared_store(lane * 16, zeros, 16, 1);
      simulator.warp_barrier(~0u, 2);
      unsigned registers[4];
      simulator.load_matrix_x4(registers, lane == 9 ? bad_address : lane * 16, 0, 3);
    };
  };
  expect_ok(run_body(body(9 * 16)));
  expect_fault(run_body(body(9 * 16 + 8)), {"warp 0 lane 9, load_matrix_x4 at line 3", "misaligned"});
  expect_fault(run_body(body(4096)), {"warp 0 lane 9, load_matrix_x4 at line 3", "out of bounds"});
  expect_fault(run_body(body(1024)), {"warp 0 lane 9, load_matrix_x4 at line 3", "uninitialised"});
}

// What one block wrote is not there for the next one on the same OS thread.
TEST(SharedMemory, EachBlockStartsUnwritten) {
  const Report report = run_body(
      [](const SimulatorInterface& simulator) {
        uint32_t value = 1;
        if (simulator.block_index() == 0) simulator.shared_store(simulator.thread_index() * 4, &value, 4, 1);
        simulator.shared_load(&value, simulator.thread_index() * 4, 4, 2);
      },
      {.grid = 2});
  expect_fault(report, {"block 1", "shared_load at line 2", "uninitialised read"});
}

TEST(SharedMemory, UninitialisedReadsAreFoundWithoutTheRaceChecker) {
  const Report report = run_body(
      [](const SimulatorInterface& simulator) {
        uint32_t value;
        simulator.shared_load(&value, 8, 4, 2);
      },
      {.check_races = false});
  expect_fault(report, {"uninitialised read"});
}

// --- global memory

struct alignas(16) Tensors {
  float input[64] = {};
  float guard[4] = {};
  float output[64] = {};
};

TestLaunch with_tensors(Tensors& tensors, int64_t grid = 1, int warps = 1) {
  return {.warps = warps,
          .grid = grid,
          .buffers = {{tensors.input, sizeof tensors.input, "input"},
                      {tensors.output, sizeof tensors.output, "output", true, false}}};
}

TEST(GlobalMemory, CopiesThrough) {
  Tensors tensors;
  for (int i = 0; i < 64; ++i) tensors.input[i] = static_cast<float>(i);
  const Report report = run_body(
      [&](const SimulatorInterface& simulator) {
        const int i = simulator.block_index() * 32 + simulator.thread_index();
        float value;
        simulator.global_load(&value, &tensors.input[i], 4, 1);
        simulator.global_store(&tensors.output[i], &value, 4, 2);
      },
      with_tensors(tensors, 2));
  expect_ok(report);
  EXPECT_EQ(std::memcmp(tensors.input, tensors.output, sizeof tensors.input), 0);
}

struct BadGlobalAccess {
  const char* name;
  void (*body)(const SimulatorInterface&, Tensors&);
  std::vector<std::string> message;
};

class GlobalFault : public testing::TestWithParam<BadGlobalAccess> {};

TEST_P(GlobalFault, IsReported) {
  Tensors tensors;
  const Report report = run_body(
      [&](const SimulatorInterface& simulator) {
        if (simulator.thread_index() == 40) GetParam().body(simulator, tensors);
      },
      with_tensors(tensors, 1, 2));
  expect_fault(report, {"kernel test_kernel, block 0, warp 1 lane 8"});
  for (const std::string& part : GetParam().message) expect_fault(report, {part});
}

float scratch[4];

INSTANTIATE_TEST_SUITE_P(
    Global, GlobalFault,
    testing::Values(
        BadGlobalAccess{"past_the_end",
                        [](const SimulatorInterface& simulator, Tensors& tensors) {
                          simulator.global_load(scratch, tensors.input + 64, 8, 31);
                        },
                        {"global_load at line 31", "0 bytes past the end of \"input\" (256 bytes)"}},
        BadGlobalAccess{"before_the_start",
                        [](const SimulatorInterface& simulator, Tensors& tensors) {
                          simulator.global_load(scratch, tensors.input - 4, 16, 32);
                        },
                        {"global_load at line 32", "16 bytes before \"input\""}},
        BadGlobalAccess{"nearest_is_named",
                        [](const SimulatorInterface& simulator, Tensors& tensors) {
                          simulator.global_store(tensors.output - 1, scratch, 4, 33);
                        },
                        {"global_store at line 33", "4 bytes before \"output\""}},
        BadGlobalAccess{
            "read_only",
            [](const SimulatorInterface& simulator, Tensors& tensors) {
              simulator.global_store(tensors.input + 2, scratch, 4, 34);
            },
            {"global_store at line 34", "writes byte 8 of \"input\", which the kernel may only read"}},
        BadGlobalAccess{
            "misaligned",
            [](const SimulatorInterface& simulator, Tensors& tensors) {
              simulator.global_load(scratch, tensors.input + 1, 16, 35);
            },
            {"global_load at line 35", "misaligned: 16 bytes at global address", "multiple of 16"}},
        BadGlobalAccess{
            "uninitialised",
            [](const SimulatorInterface& simulator, Tensors& tensors) {
              simulator.global_load(scratch, tensors.output + 4, 4, 36);
            },
            {"global_load at line 36", "reads bytes 16-19 of \"output\" that nobody has written"}},
        BadGlobalAccess{"copy_past_the_end",
                        [](const SimulatorInterface& simulator, Tensors& tensors) {
                          simulator.copy_async_16(0, tensors.input + 64, 16, 37);
                        },
                        {"copy_async_16 at line 37", "past the end of \"input\""}},
        BadGlobalAccess{"null",
                        [](const SimulatorInterface& simulator, Tensors&) {
                          simulator.global_load(scratch, nullptr, 4, 38);
                        },
                        {"global_load at line 38", "outside of every buffer"}}),
    [](const auto& fault) { return fault.param.name; });

TEST(GlobalMemory, AnAccessThatRunsPastTheEnd) {
  alignas(16) float input[6] = {};
  const Report report = run_body(
      [&](const SimulatorInterface& simulator) {
        float values[4];
        simulator.global_load(values, input + 4, 16, 3);
      },
      {.buffers = {{input, sizeof input, "input"}}});
  expect_fault(report, {"16 bytes at offset 16 of \"input\" run past its end (24 bytes)"});
}

TEST(GlobalMemory, WhatTheKernelWroteItMayRead) {
  Tensors tensors;
  expect_ok(run_body(
      [&](const SimulatorInterface& simulator) {
        float value = 2;
        simulator.global_store(&tensors.output[simulator.thread_index()], &value, 4, 1);
        simulator.global_load(&value, &tensors.output[simulator.thread_index()], 4, 2);
        simulator.global_store(&tensors.output[simulator.thread_index()], &value, 4,
                               3);  // again, the same thread
      },
      with_tensors(tensors)));
}

TEST(GlobalMemory, TwoThreadsWriteOneByte) {
  Tensors tensors;
  const Report report = run_body(
      [&](const SimulatorInterface& simulator) {
        const float values[2] = {};
        const int lane = simulator.thread_index();
        if (lane == 3) simulator.global_store(&tensors.output[2], values, 8, 1);
        simulator.warp_barrier(~0u, 2);
        if (lane == 7) simulator.global_store(&tensors.output[3], values, 4, 3);
      },
      with_tensors(tensors));
  expect_fault(report, {"warp 0 lane 7, global_store at line 3",
                        "writes byte 12 of \"output\", written before by block 0 warp 0 lane 3"});
}

TEST(GlobalMemory, TwoBlocksWriteOneTile) {
  Tensors tensors;
  const Report report = run_body(
      [&](const SimulatorInterface& simulator) {
        const float value = 0;
        simulator.global_store(&tensors.output[simulator.thread_index()], &value, 4, 9);
      },
      with_tensors(tensors, 2));
  expect_fault(report, {"block 1", "global_store at line 9", "written before by block 0 warp 0 lane"});
}

}  // namespace
}  // namespace tilewright::simulator
