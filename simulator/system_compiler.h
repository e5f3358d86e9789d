// Host code of a kernel by the system's C++ compiler: slower than the LLVM plugin, but with everything that
// debuggers, sanitizers and coverage tools want.
#pragma once

#include <memory>
#include <string>

#include "codegen/emit.h"
#include "runtime/llvm_plugin.h"

namespace tilewright {

struct SystemCompilerResult {
  std::unique_ptr<HostCode> code;
  std::string compiler;  // "system C++ compiler (c++)"
  std::string command;
  std::string source_path;
};

/// Runs `$TILEWRIGHT_CXX` (words split at blanks; else c++) and loads what it makes. Source and shared object
/// lie in a temporary directory as long as the code is loaded. Throws CompileError with the compiler's output
/// (the source is then kept), Error(environment) if the compiler cannot be started.
SystemCompilerResult compile_with_system_compiler(const Source& source);

}  // namespace tilewright
