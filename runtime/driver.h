// The CUDA Driver API, by dlopen: the few functions that Tilewright needs, under their versioned names, so
// that a build with any toolkit's cuda.h runs with any driver from 12.0 on.
#pragma once

#include <cuda.h>

#include <string>

namespace tilewright {

struct Driver {
  CUresult (*initialise)(unsigned flags);
  CUresult (*driver_version)(int* version);
  CUresult (*error_name)(CUresult, const char** text);
  CUresult (*error_string)(CUresult, const char** text);

  CUresult (*device_count)(int* count);
  CUresult (*device_get)(CUdevice* device, int ordinal);
  CUresult (*device_name)(char* name, int length, CUdevice device);
  CUresult (*device_attribute)(int* value, CUdevice_attribute attribute, CUdevice device);

  CUresult (*primary_context_retain)(CUcontext* context, CUdevice device);
  CUresult (*primary_context_release)(CUdevice device);
  CUresult (*context_get_current)(CUcontext* context);
  CUresult (*context_get_device)(CUdevice* device);
  CUresult (*context_push)(CUcontext context);
  CUresult (*context_pop)(CUcontext* context);
  CUresult (*context_synchronize)();

  CUresult (*module_load)(CUmodule* module, const void* image, unsigned option_count, CUjit_option* options,
                          void** values);
  CUresult (*module_unload)(CUmodule module);
  CUresult (*module_function)(CUfunction* function, CUmodule module, const char* name);
  CUresult (*function_set_attribute)(CUfunction function, CUfunction_attribute attribute, int value);
  CUresult (*function_get_attribute)(int* value, CUfunction_attribute attribute, CUfunction function);
  CUresult (*launch)(const CUlaunchConfig* configuration, CUfunction function, void** parameters,
                     void** extra);

  CUresult (*tensor_map_encode)(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill);
  CUresult (*stream_is_capturing)(CUstream stream, CUstreamCaptureStatus* status);
  CUresult (*stream_id)(CUstream stream, unsigned long long* id);

  CUresult (*memory_allocate)(CUdeviceptr* pointer, size_t bytes);
  CUresult (*memory_free)(CUdeviceptr pointer);
  CUresult (*copy_to_device)(CUdeviceptr destination, const void* source, size_t bytes);
  CUresult (*copy_to_host)(void* destination, CUdeviceptr source, size_t bytes);
  CUresult (*fill_bytes)(CUdeviceptr destination, unsigned char value, size_t count);
  CUresult (*fill_bytes_on)(CUdeviceptr destination, unsigned char value, size_t count, CUstream stream);

  CUresult (*stream_create)(CUstream* stream, unsigned flags);
  CUresult (*event_create)(CUevent* event, unsigned flags);
  CUresult (*event_record)(CUevent event, CUstream stream);
  CUresult (*event_query)(CUevent event);
  CUresult (*event_elapsed)(float* milliseconds, CUevent begin, CUevent end);
  CUresult (*device_memory)(size_t* bytes, CUdevice device);
  CUresult (*device_pci_bus)(char* name, int length, CUdevice device);

  std::string path;  // of the library
};

/// Loads and initialises the driver on first use. Throws Error(environment) with what was tried.
const Driver& driver();

/// Null instead of an error: no driver, or one that does not start; `why` says so.
const Driver* try_driver(std::string* why = nullptr);

/// "13.0" for 13000.
std::string driver_version_text(const Driver& driver);

/// Throws Error(device) with the driver's name and text of the error, unless `result` is success.
void check(CUresult result, const char* action);

}  // namespace tilewright
