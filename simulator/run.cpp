#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "simulator/block.h"
#include "simulator/crash_guard.h"
#include "simulator/interface.h"
#include "simulator/simulator.h"

namespace tilewright::simulator {
namespace {

std::string launch_fault(const Launch& launch) {
  if (!launch.thunk || !launch.bind) return "the kernel's code lacks its thunk or its binder";
  if (launch.threads < 32 || launch.threads > 1024 || launch.threads % 32 != 0) {
    return fmt::format("{} threads per block, expected a multiple of 32 up to 1024", launch.threads);
  }
  if (launch.cluster < 1 || launch.grid % launch.cluster != 0) {
    return fmt::format("clusters of {} blocks in a grid of {}", launch.cluster, launch.grid);
  }
  if (launch.cluster > 1 && (launch.threads % 128 != 0 || launch.threads * launch.cluster > 1024)) {
    return fmt::format(
        "clusters of {} blocks of {} threads; the simulator takes multiples of 128, up to 1024 a cluster",
        launch.cluster, launch.threads);
  }
  if (launch.shared_memory < 0) return fmt::format("{} bytes of shared memory", launch.shared_memory);
  if (launch.grid < 0 || launch.grid > INT32_MAX) {
    return fmt::format("a grid of {} blocks, expected 0 to {}", launch.grid, INT32_MAX);
  }
  return "";
}

/// Hands out the blocks, or clusters, of a launch in order, to as many OS threads as there are, until one has
/// a fault. All blocks below a faulty one have then been handed out, so that the lowest faulty block is
/// reported, whatever the threads do.
class Workers {
 public:
  Workers(const Launch& launch, GlobalMemory& global) : launch_(launch), global_(global) {}

  Report run() {
    int count =
        launch_.os_threads > 0 ? launch_.os_threads : static_cast<int>(std::thread::hardware_concurrency());
    count =
        static_cast<int>(std::clamp<int64_t>(count, 1, std::max<int64_t>(launch_.grid / launch_.cluster, 1)));
    std::vector<std::thread> others;
    try {
      for (int i = 1; i < count; ++i) others.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // Fewer threads than cores then; this one is enough.
    }
    work();
    for (std::thread& other : others) other.join();
    return result_;
  }

 private:
  void work() {
    try {
      const CrashGuard guard;
      Block block(launch_, global_);
      while (!stop_) {
        const int64_t index = next_++;
        if (index >= launch_.grid / launch_.cluster) break;
        if (!block.run(index)) {
          note_fault(index, block.report());
          return;
        }
      }
      const std::lock_guard lock(mutex_);
      result_.barriers += block.report().barriers;
      result_.switches += block.report().switches;
    } catch (const std::exception& error) {
      note_fault(-1,
                 {.ok = false, .message = fmt::format("kernel {}: {}", launch_.kernel_name, error.what())});
    }
  }

  void note_fault(int64_t block, const Report& report) {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (!result_.ok && faulty_block_ < block) return;
    faulty_block_ = block;
    result_ = report;
  }

  const Launch& launch_;
  GlobalMemory& global_;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  int64_t faulty_block_ = 0;
  Report result_;
};

/// Line `number` of a text, without the blanks around it.
std::string line_of(const std::string& text, int number) {
  size_t begin = 0;
  for (int line = 1; line < number; ++line) {
    begin = text.find('\n', begin);
    if (begin == std::string::npos) return "";
    ++begin;
  }
  std::string line = text.substr(begin, text.find('\n', begin) - begin);
  const size_t first = line.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace

Report run(const Launch& launch) {
  try {
    if (const std::string fault = launch_fault(launch); !fault.empty()) {
      return {.ok = false, .message = fmt::format("kernel {}: {}", launch.kernel_name, fault)};
    }
    launch.bind(&simulator_interface);
    GlobalMemory global(launch.buffers);
    return Workers(launch, global).run();
  } catch (const std::exception& error) {
    return {.ok = false, .message = fmt::format("kernel {}: {}", launch.kernel_name, error.what())};
  }
}

std::string with_source_line(const Report& report, const std::string& source_text) {
  std::string text = report.message;
  int previous = 0;
  for (const int line : {report.line, report.other_line}) {
    if (line == 0 || line == previous) continue;
    previous = line;
    if (const std::string source_line = line_of(source_text, line); !source_line.empty()) {
      text += fmt::format("\n  line {}: {}", line, source_line);
    }
  }
  return text;
}

}  // namespace tilewright::simulator
