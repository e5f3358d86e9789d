#include "runtime/nvrtc_library.h"

#include <dlfcn.h>

#include <algorithm>

#include "codegen/error.h"

namespace tilewright {

std::string NvrtcLibrary::version_text() const {
  return "NVRTC " + std::to_string(major) + "." + std::to_string(minor);
}

bool NvrtcLibrary::knows(int architecture) const {
  return std::find(known_architectures.begin(), known_architectures.end(), architecture) !=
         known_architectures.end();
}

NvrtcLibrary load_nvrtc(const std::filesystem::path& file) {
  void* handle = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!handle) throw Error(ErrorKind::environment, std::string("cannot load NVRTC: ") + dlerror());
  NvrtcLibrary library{};
  library.file = file;
  auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (!function)
      throw Error(ErrorKind::environment,
                  file.string() + " lacks " + name + ": it is no NVRTC of version 12 or newer");
  };
  bind(library.error_string, "nvrtcGetErrorString");
  bind(library.version, "nvrtcVersion");
  bind(library.architecture_count, "nvrtcGetNumSupportedArchs");
  bind(library.architectures, "nvrtcGetSupportedArchs");
  bind(library.create, "nvrtcCreateProgram");
  bind(library.destroy, "nvrtcDestroyProgram");
  bind(library.compile, "nvrtcCompileProgram");
  bind(library.log_size, "nvrtcGetProgramLogSize");
  bind(library.log, "nvrtcGetProgramLog");
  bind(library.ptx_size, "nvrtcGetPTXSize");
  bind(library.ptx, "nvrtcGetPTX");
  bind(library.cubin_size, "nvrtcGetCUBINSize");
  bind(library.cubin, "nvrtcGetCUBIN");

  int count = 0;
  bool answered = library.version(&library.major, &library.minor) == NVRTC_SUCCESS &&
                  library.architecture_count(&count) == NVRTC_SUCCESS && count > 0;
  if (answered) {
    library.known_architectures.resize(count);
    answered = library.architectures(library.known_architectures.data()) == NVRTC_SUCCESS;
  }
  if (!answered) throw Error(ErrorKind::environment, file.string() + " does not tell its version");
  std::sort(library.known_architectures.begin(), library.known_architectures.end());
  if (library.major < 12)
    throw Error(ErrorKind::environment,
                file.string() + " is " + library.version_text() + ", 12.0 or newer is needed");
  // The first compile opens this companion by name alone, and a wheel's NVRTC does not look beside itself:
  // once loaded, it is found. Where it is missing, the compile says so.
  const auto companion =
      "libnvrtc-builtins.so." + std::to_string(library.major) + "." + std::to_string(library.minor);
  dlopen((file.parent_path() / companion).c_str(), RTLD_LAZY | RTLD_LOCAL);
  return library;
}

}  // namespace tilewright
