#include "tuner/nvml.h"

#include <dlfcn.h>

namespace tilewright {
namespace {

// nvml.h, of which a few lines are all that is needed: 0 is success, 1 the clock of the multiprocessors.
constexpr int success = 0, multiprocessor_clock = 1;
// nvmlClocksEventReason: hardware slowdown, software thermal, hardware thermal, power brake.
constexpr unsigned long long slowdown = 0x8 | 0x20 | 0x40 | 0x80;

}  // namespace

Nvml::Nvml(const std::string& pci_bus) {
  library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library_) return;
  const auto initialise = reinterpret_cast<int (*)()>(function("nvmlInit_v2"));
  const auto find =
      reinterpret_cast<int (*)(const char*, void**)>(function("nvmlDeviceGetHandleByPciBusId_v2"));
  if (!initialise || !find || initialise() != success) return;
  if (find(pci_bus.c_str(), &device_) != success) device_ = nullptr;
}

Nvml::~Nvml() {
  if (library_) dlclose(library_);
}

void* Nvml::function(const char* name) const {
  return library_ ? dlsym(library_, name) : nullptr;
}

bool Nvml::throttled() const {
  const auto ask = reinterpret_cast<int (*)(void*, unsigned long long*)>(
      function("nvmlDeviceGetCurrentClocksThrottleReasons"));
  unsigned long long reasons = 0;
  return device_ && ask && ask(device_, &reasons) == success && (reasons & slowdown) != 0;
}

int Nvml::megahertz() const {
  const auto ask = reinterpret_cast<int (*)(void*, int, unsigned*)>(function("nvmlDeviceGetClockInfo"));
  unsigned clock = 0;
  return device_ && ask && ask(device_, multiprocessor_clock, &clock) == success ? static_cast<int>(clock)
                                                                                 : 0;
}

std::string Nvml::driver_version() const {
  const auto ask = reinterpret_cast<int (*)(char*, unsigned)>(function("nvmlSystemGetDriverVersion"));
  char text[96] = "";
  return ask && ask(text, sizeof text) == success ? text : "";
}

}  // namespace tilewright
