#include "runtime/environment.h"

#include <cmath>
#include <cstdlib>

#include "codegen/error.h"

namespace tilewright {
namespace {

constexpr EnvironmentVariable variables[] = {
    {Variable::cache_directory, "TILEWRIGHT_CACHE_DIR", "directory of compiled kernels, private to its user",
     "$XDG_CACHE_HOME/tilewright, else $HOME/.cache/tilewright"},
    {Variable::site_cache_directory, "TILEWRIGHT_SITE_CACHE_DIR",
     "read-only directory of compiled kernels that is asked before the user's own", "none"},
    {Variable::cache_debug, "TILEWRIGHT_CACHE_DEBUG",
     "1: keep the exact bytes that were hashed beside each cache entry, so that two keys can be compared",
     "off"},
    {Variable::bundles, "TILEWRIGHT_BUNDLES",
     "bundles of precompiled kernels that are asked first, with colons between", "none"},
    {Variable::compiling, "TILEWRIGHT_COMPILING",
     "0: compile nothing for a GPU; a kernel that is in no bundle and no cache is an error", "1"},
    {Variable::lock_seconds, "TILEWRIGHT_LOCK_SECONDS",
     "how long to wait for another process that compiles the same kernel before compiling it here too", "60"},
    {Variable::records_directory, "TILEWRIGHT_RECORDS_DIR",
     "directory of tuning records that is asked before those that ship",
     "$XDG_DATA_HOME/tilewright/tuned, else $HOME/.local/share/tilewright/tuned"},
    {Variable::nvrtc, "TILEWRIGHT_NVRTC",
     "the NVRTC library: a file, or a directory that holds libnvrtc.so.*",
     "searched in the process, LD_LIBRARY_PATH, the CUDA toolkit and Python packages"},
    {Variable::driver, "TILEWRIGHT_DRIVER", "the CUDA driver library to load", "libcuda.so.1"},
    {Variable::llvm_plugin, "TILEWRIGHT_LLVM_PLUGIN", "the LLVM plugin libtilewright-llvm.so",
     "beside the Tilewright library or command, else the loader's path"},
    {Variable::cxx, "TILEWRIGHT_CXX", "C++ compiler of the simulator's system mode", "c++"},
};

}  // namespace

std::span<const EnvironmentVariable> environment_variables() {
  return variables;
}

const char* name_of(Variable variable) {
  return variables[static_cast<int>(variable)].name;
}

std::optional<std::string> environment(Variable variable) {
  const char* value = std::getenv(name_of(variable));
  if (!value || !*value) return std::nullopt;
  return value;
}

bool environment_flag(Variable variable) {
  auto value = environment(variable);
  return value && *value != "0";
}

std::optional<double> environment_number(Variable variable) {
  auto text = environment(variable);
  if (!text) return std::nullopt;
  char* end = nullptr;
  double value = std::strtod(text->c_str(), &end);
  if (*end || !std::isfinite(value) || value < 0)
    throw Error(ErrorKind::usage,
                std::string(name_of(variable)) + " is '" + *text + "', expected a number of at least 0");
  return value;
}

}  // namespace tilewright
