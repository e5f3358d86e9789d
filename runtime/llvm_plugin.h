// The boundary to libtilewright-llvm.so, the only part that links LLVM. Loaded with dlopen(RTLD_LOCAL) on
// demand.
#pragma once

#include <memory>
#include <string>

#include "runtime/compiler.h"

namespace tilewright {

/// Host code of one kernel, ready to call; the code lives as long as the object.
class HostCode {
 public:
  virtual ~HostCode() = default;
  /// Address of an extern "C" function; null if there is none.
  virtual void* symbol(const std::string& name) = 0;
};

class LlvmPlugin {
 public:
  virtual ~LlvmPlugin() = default;
  virtual std::string version() = 0;  // "19.1.7"
  /// clang for NVPTX, always PTX. Throws Error(environment) for a target LLVM does not know (naming the
  /// newest it does).
  virtual Compiler& device_compiler() = 0;
  /// clang and ORC at -O0. Throws CompileError.
  virtual std::unique_ptr<HostCode> compile_host(const Source& source) = 0;
};

/// Beside the library, in TILEWRIGHT_LLVM_PLUGIN, or in the loader's path. Null if it cannot be loaded; `why`
/// says so.
LlvmPlugin* llvm_plugin(std::string* why = nullptr);

}  // namespace tilewright
