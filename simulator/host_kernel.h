// Generated source (Backend::simulator) to callable host code, by whichever compiler there is.
#pragma once

#include <memory>
#include <string>

#include "codegen/emit.h"
#include "runtime/include/tilewright/tilewright.hpp"
#include "runtime/llvm_plugin.h"
#include "simulator/simulator.h"

namespace tilewright {

/// A kernel's host code and its entry points; the code lives as long as the object.
struct HostKernel {
  std::unique_ptr<HostCode> code;
  void (*thunk)(const void*) = nullptr;   // for simulator::Launch
  void (*before)(const void*) = nullptr;  // those of the source's other kernels
  void (*after)(const void*) = nullptr;
  void (*bind)(const void*) = nullptr;
  std::string compiler;     // "clang 19.1.7", "system C++ compiler (c++)"
  std::string command;      // options, as one would type them
  std::string source_path;  // where the source lies while the kernel lives; empty: nowhere
  double milliseconds = 0;
};

/// `automatic`: the LLVM plugin if it loads, else the system compiler. The system compiler's source and
/// shared object lie on disk while the kernel lives, for a debugger. Throws CompileError with the log;
/// Error(environment) if the compiler asked for is missing; Error(internal) if the code lacks
/// `<kernel>_thunk` or `<kernel>_bind`.
HostKernel build_host_kernel(const Source& source, SimulatorCompiler compiler);

}  // namespace tilewright
