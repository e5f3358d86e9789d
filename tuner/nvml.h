// NVML, loaded with dlopen where there is one: what the driver is, and whether the GPU is held back.
#pragma once

#include <memory>
#include <string>

namespace tilewright {

class Nvml {
 public:
  /// Without the library everything is unknown, and nothing fails.
  explicit Nvml(const std::string& pci_bus);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool present() const { return device_ != nullptr; }
  /// Whether heat, a power brake or the hardware slows the GPU down now. The power cap is no such reason:
  /// under attention kernels it is the usual state of large GPUs.
  bool throttled() const;
  /// Of the multiprocessors, now; 0: unknown.
  int megahertz() const;
  /// "580.159.04"; empty: unknown.
  std::string driver_version() const;

 private:
  void* function(const char* name) const;
  void* library_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace tilewright
