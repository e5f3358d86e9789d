#include "runtime/driver.h"

#include <dlfcn.h>

#include <optional>

#include "codegen/error.h"
#include "runtime/environment.h"

namespace tilewright {
namespace {

struct Loaded {
  std::optional<Driver> driver;
  std::string why;
};

Loaded load() {
  Loaded loaded;
  std::string path = environment(Variable::driver).value_or("libcuda.so.1");
  std::string remedy =
      "; install NVIDIA's driver, or name its library in " + std::string(name_of(Variable::driver));
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    loaded.why = std::string("no CUDA driver: ") + dlerror() + remedy;
    return loaded;
  }
  Driver driver{};
  driver.path = path;
  std::string missing;
  auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function && missing.empty()) missing = name;
  };
  bind(driver.initialise, "cuInit");
  bind(driver.driver_version, "cuDriverGetVersion");
  bind(driver.error_name, "cuGetErrorName");
  bind(driver.error_string, "cuGetErrorString");
  bind(driver.device_count, "cuDeviceGetCount");
  bind(driver.device_get, "cuDeviceGet");
  bind(driver.device_name, "cuDeviceGetName");
  bind(driver.device_attribute, "cuDeviceGetAttribute");
  bind(driver.primary_context_retain, "cuDevicePrimaryCtxRetain");
  bind(driver.primary_context_release, "cuDevicePrimaryCtxRelease_v2");
  bind(driver.context_get_current, "cuCtxGetCurrent");
  bind(driver.context_get_device, "cuCtxGetDevice");
  bind(driver.context_push, "cuCtxPushCurrent_v2");
  bind(driver.context_pop, "cuCtxPopCurrent_v2");
  bind(driver.context_synchronize, "cuCtxSynchronize");
  bind(driver.module_load, "cuModuleLoadDataEx");
  bind(driver.module_unload, "cuModuleUnload");
  bind(driver.module_function, "cuModuleGetFunction");
  bind(driver.function_set_attribute, "cuFuncSetAttribute");
  bind(driver.function_get_attribute, "cuFuncGetAttribute");
  bind(driver.launch, "cuLaunchKernelEx");
  bind(driver.tensor_map_encode, "cuTensorMapEncodeTiled");
  bind(driver.stream_is_capturing, "cuStreamIsCapturing");
  bind(driver.stream_id, "cuStreamGetId");
  bind(driver.memory_allocate, "cuMemAlloc_v2");
  bind(driver.memory_free, "cuMemFree_v2");
  bind(driver.copy_to_device, "cuMemcpyHtoD_v2");
  bind(driver.copy_to_host, "cuMemcpyDtoH_v2");
  bind(driver.fill_bytes, "cuMemsetD8_v2");
  bind(driver.fill_bytes_on, "cuMemsetD8Async");
  bind(driver.stream_create, "cuStreamCreate");
  bind(driver.event_create, "cuEventCreate");
  bind(driver.event_record, "cuEventRecord");
  bind(driver.event_query, "cuEventQuery");
  bind(driver.event_elapsed, "cuEventElapsedTime");
  bind(driver.device_memory, "cuDeviceTotalMem_v2");
  bind(driver.device_pci_bus, "cuDeviceGetPCIBusId");
  if (!missing.empty()) {
    loaded.why = "the CUDA driver " + path + " lacks " + missing + remedy;
    return loaded;
  }
  if (CUresult result = driver.initialise(0); result != CUDA_SUCCESS) {
    const char* text = nullptr;
    driver.error_string(result, &text);
    loaded.why = "the CUDA driver " + path + " does not start: " + (text ? text : "unknown error") + " (" +
                 std::to_string(result) + ")";
    return loaded;
  }
  loaded.driver = driver;
  return loaded;
}

const Loaded& loaded() {
  static const auto* instance = new Loaded(load());  // never destroyed: kernels may outlive statics
  return *instance;
}

}  // namespace

const Driver& driver() {
  if (!loaded().driver) throw Error(ErrorKind::environment, loaded().why);
  return *loaded().driver;
}

const Driver* try_driver(std::string* why) {
  if (loaded().driver) return &*loaded().driver;
  if (why) *why = loaded().why;
  return nullptr;
}

std::string driver_version_text(const Driver& driver) {
  int version = 0;
  driver.driver_version(&version);
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void check(CUresult result, const char* action) {
  if (result == CUDA_SUCCESS) return;
  const char *name = nullptr, *text = nullptr;
  driver().error_name(result, &name);
  driver().error_string(result, &text);
  throw Error(ErrorKind::device, std::string("cannot ") + action + ": " + (name ? name : "unknown error") +
                                     ", " + (text ? text : "no description") + " (" + std::to_string(result) +
                                     ")");
}

}  // namespace tilewright
