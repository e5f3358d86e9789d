// What runs kernels: a CUDA GPU or the simulator.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "codegen/launch_plan.h"
#include "runtime/arguments.h"
#include "runtime/backward_arguments.h"
#include "runtime/cache.h"
#include "runtime/include/tilewright/tilewright.hpp"
#include "runtime/tuning_records.h"

namespace tilewright {

/// A kernel that is loaded on a device.
class Executable {
 public:
  virtual ~Executable() = default;
  /// Starts at least one block. `arguments` are those that `launch` was prepared from. Throws Error(usage)
  /// for a margin that the device does not have.
  virtual void launch(Stream stream, const PreparedLaunch& launch, const ForwardArguments& arguments,
                      const LaunchOptions& options) const = 0;
  /// Starts the kernels of the backward pass, one after the other.
  virtual void launch(Stream stream, const PreparedBackward& launch,
                      const BackwardArguments& arguments) const = 0;
  virtual const CompileReport& report() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual bool is_simulator() const = 0;
  virtual const Target& target() const = 0;
  /// Kernels for it are PTX: the target table does not know the device.
  virtual bool wants_ptx() const { return false; }
  virtual std::string name() const = 0;
  virtual Backend backend() const = 0;
  /// What tuning records know it as; nothing: records are not for it.
  virtual std::optional<GpuModel> gpu_model() const { return std::nullopt; }

  /// From the cache or compiled now, then loaded.
  virtual std::unique_ptr<Executable> load(const AttentionSpec& spec, const Schedule& schedule,
                                           const Source& source, KernelCache& cache, CacheResult& from) = 0;

  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* data) noexcept = 0;
  virtual void upload(void* destination, const void* host, size_t bytes) = 0;
  virtual void download(void* host, const void* source, size_t bytes) = 0;
  virtual void fill(void* destination, unsigned char value, size_t bytes) = 0;
  virtual void synchronize() = 0;
};

/// Whether there is a CUDA device; `why` says why not.
bool cuda_device_available(std::string* why = nullptr);

/// Of the CUDA device with this number; nothing if there is none, or no target for it.
std::optional<GpuModel> cuda_gpu_model(int ordinal);

/// Uses the caller's current context if there is one on that device, else the device's primary context.
/// Throws Error(environment) if there is no such device or no kernels for it.
std::unique_ptr<Device> make_cuda_device(int ordinal);

/// Throws Error(usage) for an unknown target.
std::unique_ptr<Device> make_simulator_device(const SimulatorOptions& options, const std::string& target);

}  // namespace tilewright
