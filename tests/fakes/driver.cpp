// A CUDA driver with one device and no GPU, for the tests of everything around a launch. The environment
// tells it:
//   FAKE_DRIVER_CAPABILITY=9.0   the device's compute capability
//   FAKE_DRIVER_DEVICES=1        how many there are
//   FAKE_DRIVER_LOG=FILE         gets a line for each call that matters
//   FAKE_DRIVER_HOPPER=1         launches are of the sm90 family: the log has their tiles and counters too,
//   and
//                                what is done with memory
//   FAKE_DRIVER_REFUSES_MAPS=1
// There are 8 multiprocessors. Streams from 0x1000 on are being captured; the id of a stream is its handle.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/forward_parameters.h"

namespace {

std::string setting(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value ? value : fallback;
}

void log(const std::string& line) {
  const std::string file = setting("FAKE_DRIVER_LOG", "");
  if (file.empty()) return;
  std::FILE* stream = std::fopen(file.c_str(), "a");
  std::fprintf(stream, "%s\n", line.c_str());
  std::fclose(stream);
}

void log_memory(const std::string& line) {
  if (std::getenv("FAKE_DRIVER_HOPPER")) log(line);
}

CUcontext const primary = reinterpret_cast<CUcontext>(0x1000);
thread_local CUcontext stack[8];
thread_local int depth = 0;

}  // namespace

#undef cuDevicePrimaryCtxRelease
#undef cuCtxPushCurrent
#undef cuCtxPopCurrent
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemcpyHtoD
#undef cuMemcpyDtoH
#undef cuMemsetD8
#undef cuDeviceTotalMem
#undef cuEventElapsedTime

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDriverGetVersion(int* version) {
  return *version = 12040, CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorName(CUresult, const char** text) {
  return *text = "CUDA_ERROR_FAKE", CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult, const char** text) {
  return *text = "as asked", CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetCount(int* count) {
  return *count = std::atoi(setting("FAKE_DRIVER_DEVICES", "1").c_str()), CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return *device = ordinal, CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  return std::snprintf(name, length, "Fake GPU"), CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  int major = 0, minor = 0;
  std::sscanf(setting("FAKE_DRIVER_CAPABILITY", "9.0").c_str(), "%d.%d", &major, &minor);
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? major
           : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? minor
           : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? 8
                                                                       : -1;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  return log("retain primary"), *context = primary, CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  return log("release primary"), CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  return *context = depth ? stack[depth - 1] : nullptr, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  return *device = 0, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return stack[depth++] = context, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return *context = stack[--depth], CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSynchronize() {
  return log_memory("synchronize"), CUDA_SUCCESS;
}
EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  log("load " + std::string(static_cast<const char*>(image)).substr(0, 60));
  return *module = reinterpret_cast<CUmodule>(0x2000), CUDA_SUCCESS;
}
EXPORT CUresult cuModuleUnload(CUmodule) {
  return log("unload"), CUDA_SUCCESS;
}
EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  log(std::string("function ") + name);
  return *function = reinterpret_cast<CUfunction>(0x3000), CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int value) {
  return log("shared memory " + std::to_string(value)), CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  return *value = 42, CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction, void** parameters, void**) {
  bool early = false;
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      early = attribute.value.programmaticStreamSerializationAllowed == 1;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) cluster = attribute.value.clusterDim.x;
  }
  log("launch grid " + std::to_string(config->gridDimX) + " " + std::to_string(config->gridDimY) + " " +
      std::to_string(config->gridDimZ) + " threads " + std::to_string(config->blockDimX) + " shared " +
      std::to_string(config->sharedMemBytes) + " stream " +
      std::to_string(reinterpret_cast<size_t>(config->hStream)) + " context " +
      (depth && stack[depth - 1] == primary ? "primary" : "other") +
      (cluster > 1 ? " clusters of " + std::to_string(cluster) : "") + (early ? " early" : ""));
  if (std::getenv("FAKE_DRIVER_HOPPER")) {
    const auto& hopper = *static_cast<tilewright::HopperForwardParameters*>(parameters[0]);
    log("tiles " + std::to_string(hopper.tiles) + " counters " +
        (hopper.counters ? std::to_string(reinterpret_cast<size_t>(hopper.counters) % 8192 / 128) : "none"));
  }
  return std::getenv("FAKE_DRIVER_FAIL") ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}
EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void*,
                                       const cuuint64_t* sizes, const cuuint64_t* strides,
                                       const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave,
                                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                       CUtensorMapFloatOOBfill) {
  std::string line = "map " + std::string(type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 ? "fp16" : "bf16");
  for (cuuint32_t i = 0; i < rank; ++i) line += (i ? "x" : " ") + std::to_string(sizes[i]);
  line += " strides";
  for (cuuint32_t i = 0; i + 1 < rank; ++i) line += " " + std::to_string(strides[i]);
  line += " box";
  for (cuuint32_t i = 0; i < rank; ++i) line += " " + std::to_string(box[i]);
  log(line + (swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? " swizzled" : ""));
  std::memset(map, 0, sizeof *map);
  return std::getenv("FAKE_DRIVER_REFUSES_MAPS") ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  const bool captured = reinterpret_cast<size_t>(stream) >= 0x1000;
  return *status = captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}
EXPORT CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  return *id = reinterpret_cast<size_t>(stream), CUDA_SUCCESS;
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  log_memory("allocate " + std::to_string(bytes));
  // Aligned so that the log can show places within an allocation.
  void* memory = std::aligned_alloc(8192, (bytes + 8191) / 8192 * 8192);
  return *pointer = reinterpret_cast<CUdeviceptr>(memory), CUDA_SUCCESS;
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
  return log_memory("free"), std::free(reinterpret_cast<void*>(pointer)), CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void* source, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(destination), source, bytes), CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyDtoH_v2(void* destination, CUdeviceptr source, size_t bytes) {
  return std::memcpy(destination, reinterpret_cast<void*>(source), bytes), CUDA_SUCCESS;
}
EXPORT CUresult cuMemsetD8_v2(CUdeviceptr destination, unsigned char value, size_t bytes) {
  log_memory("fill " + std::to_string(bytes) + " bytes with " + std::to_string(value));
  return std::memset(reinterpret_cast<void*>(destination), value, bytes), CUDA_SUCCESS;
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr destination, unsigned char value, size_t bytes, CUstream) {
  return std::memset(reinterpret_cast<void*>(destination), value, bytes), CUDA_SUCCESS;
}
EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned) {
  return *stream = reinterpret_cast<CUstream>(0x10), CUDA_SUCCESS;
}
EXPORT CUresult cuEventCreate(CUevent* event, unsigned) {
  return *event = reinterpret_cast<CUevent>(0x5000), CUDA_SUCCESS;
}
EXPORT CUresult cuEventRecord(CUevent, CUstream) {
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventQuery(CUevent) {
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  return *milliseconds = 1, CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  return *bytes = size_t{1} << 30, CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetPCIBusId(char* name, int length, CUdevice device) {
  return std::snprintf(name, length, "0000:%02x:00.0", device + 1), CUDA_SUCCESS;
}
