// Times kernels on a CUDA device.
#pragma once

#include <vector>

#include "codegen/schedule.h"
#include "runtime/tuning_records.h"
#include "tuner/bench.h"
#include "tuner/gate.h"

namespace tilewright {

/// What the machine's GPUs are, in the order of their numbers. Asks in a child process, so that this one may
/// still start children that use the driver. Throws Error(environment) if there is no driver or no device.
struct GpuOfHost {
  int ordinal = 0;
  GpuModel gpu;
  int megahertz = 0;    // the highest clock
  std::string driver;   // "580.159.04", or the CUDA version that it speaks
  std::string pci_bus;  // "0000:01:00.0"
  bool as_ptx = false;  // kernels for it are PTX
  std::string refused;  // why no kernels can be made for it
};
std::vector<GpuOfHost> gpus_of_host();

struct GpuBenchOptions {
  int ordinal = 0;
  GpuModel gpu;
  std::filesystem::path cache_directory;  // where the candidates have been compiled into
};
/// For a child process of BenchProcess. `gate` outlives it.
std::unique_ptr<Bench> make_gpu_bench(const AttentionSpec& spec, const std::vector<Schedule>& candidates,
                                      Gate& gate, const GpuBenchOptions& options);

}  // namespace tilewright
