// Kernels written as C++ functions that call the simulator's interface directly, without any compiler.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "simulator/interface.h"
#include "simulator/simulator.h"

namespace tilewright::simulator {

using KernelBody = std::function<void(const SimulatorInterface& simulator)>;

struct TestLaunch {
  int warps = 1;
  int64_t grid = 1;
  int cluster = 1;
  int shared_memory = 4096;
  std::vector<Buffer> buffers = {};
  uint64_t seed = 0;
  bool check_races = true;
  int os_threads = 1;
};

inline const SimulatorInterface* bound_interface = nullptr;

/// Runs `body` once for each thread of each block. The body's locals must not need destructors: a fault
/// abandons them.
inline Report run_body(const KernelBody& body, const TestLaunch& test = {}) {
  Launch launch;
  launch.kernel_name = "test_kernel";
  launch.bind = [](const void* interface) {
    bound_interface = static_cast<const SimulatorInterface*>(interface);
  };
  launch.thunk = [](const void* parameters) {
    (*static_cast<const KernelBody*>(parameters))(*bound_interface);
  };
  launch.parameters = &body;
  launch.grid = test.grid;
  launch.cluster = test.cluster;
  launch.threads = test.warps * 32;
  launch.shared_memory = test.shared_memory;
  launch.buffers = test.buffers;
  launch.seed = test.seed;
  launch.check_races = test.check_races;
  launch.os_threads = test.os_threads;
  return run(launch);
}

/// The launch must fail with a message that holds every part.
inline void expect_fault(const Report& report, std::initializer_list<std::string> parts) {
  EXPECT_FALSE(report.ok) << "no fault found, expected: " << *parts.begin();
  for (const std::string& part : parts) {
    EXPECT_NE(report.message.find(part), std::string::npos)
        << "\"" << part << "\" not in: " << report.message;
  }
}

inline void expect_ok(const Report& report) {
  EXPECT_TRUE(report.ok) << report.message;
}

}  // namespace tilewright::simulator
