// Where NVRTC is, and its functions. Finding it reads no more than directories, so that kernels in the cache
// need no 100 MB library to be loaded; it is loaded when something must be compiled.
#pragma once

#include <nvrtc.h>

#include <filesystem>
#include <string>
#include <vector>

namespace tilewright {

/// The library's file, by this order: TILEWRIGHT_NVRTC, the process itself, LD_LIBRARY_PATH, the CUDA
/// toolkit, `cuda/lib` beside this library, Python packages, the system's library directories. Throws
/// Error(environment) with every place tried.
std::filesystem::path find_nvrtc();

/// The directories among these places, in order.
std::vector<std::filesystem::path> nvrtc_directories();

struct NvrtcLibrary {
  const char* (*error_string)(nvrtcResult);
  nvrtcResult (*version)(int* major, int* minor);
  nvrtcResult (*architecture_count)(int* count);
  nvrtcResult (*architectures)(int* architectures);
  nvrtcResult (*create)(nvrtcProgram* program, const char* source, const char* name, int header_count,
                        const char* const* headers, const char* const* include_names);
  nvrtcResult (*destroy)(nvrtcProgram* program);
  nvrtcResult (*compile)(nvrtcProgram program, int option_count, const char* const* options);
  nvrtcResult (*log_size)(nvrtcProgram program, size_t* size);
  nvrtcResult (*log)(nvrtcProgram program, char* text);
  nvrtcResult (*ptx_size)(nvrtcProgram program, size_t* size);
  nvrtcResult (*ptx)(nvrtcProgram program, char* text);
  nvrtcResult (*cubin_size)(nvrtcProgram program, size_t* size);
  nvrtcResult (*cubin)(nvrtcProgram program, char* image);

  std::filesystem::path file;
  int major = 0, minor = 0;
  std::vector<int> known_architectures;  // 80 for compute capability 8.0; ascending

  std::string version_text() const;  // "NVRTC 13.0"
  bool knows(int architecture) const;
};

/// Throws Error(environment) if the file is no NVRTC of version 12 or newer.
NvrtcLibrary load_nvrtc(const std::filesystem::path& file);

}  // namespace tilewright
