// Runs generated kernels on the CPU: a fiber per CUDA thread, checked memory, late-landing asynchronous
// copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tilewright::simulator {

/// Global memory that the kernel may touch. Anything else is an out-of-bounds error. Bytes of a buffer with
/// `initialised` false must be written before they are read.
struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;
  std::string name;  // "q", "out": for reports
  bool writable = false;
  bool initialised = true;
  bool counters = false;  // writable; all blocks may add to it (global_add) and store to it, in any order
  bool sums = false;      // holds values that all blocks may add to (global_sum), and nobody may store to
};

struct Launch {
  std::string kernel_name;
  /// The generated thunk: `extern "C" void <kernel>_thunk(const void* parameters)` runs the kernel body once,
  /// as the current thread; and the binder `extern "C" void <kernel>_bind(const SimulatorInterface*)`.
  void (*thunk)(const void*) = nullptr;
  void (*bind)(const void*) = nullptr;
  const void* parameters = nullptr;
  int64_t grid = 0;  // blocks
  int cluster = 1;   // blocks of a cluster; divides the grid
  int threads = 0;
  int shared_memory = 0;
  std::vector<Buffer> buffers;
  uint64_t seed = 0;  // 0: asynchronous work lands at once, 1: as late as it may, others: drawn
  bool check_races = true;
  int os_threads = 0;  // blocks in parallel; 0: as many as there are cores
};

/// One fault of a kernel; the first one found ends the launch.
struct Report {
  bool ok = true;
  std::string message;  // names kernel, block, warp or thread, primitive and line of the generated source
  int line = 0, other_line = 0;        // of the generated source; other: what it conflicts with; 0: none
  int64_t barriers = 0, switches = 0;  // for the curious
};

/// Never throws for a faulty kernel: the report says what is wrong with it, or with the launch itself.
Report run(const Launch& launch);

/// The report's message followed by the text of the line it names.
std::string with_source_line(const Report& report, const std::string& source_text);

}  // namespace tilewright::simulator
