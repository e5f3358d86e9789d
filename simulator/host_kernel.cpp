#include "simulator/host_kernel.h"

#include <chrono>

#include "codegen/error.h"
#include "simulator/system_compiler.h"

namespace tilewright {
namespace {

HostKernel build_with_plugin(LlvmPlugin& plugin, const Source& source) {
  HostKernel kernel;
  kernel.code = plugin.compile_host(source);
  kernel.compiler = "clang " + plugin.version();
  kernel.command = "clang -std=c++20 -O0 (in process)";
  return kernel;
}

HostKernel build_with_system_compiler(const Source& source) {
  SystemCompilerResult result = compile_with_system_compiler(source);
  HostKernel kernel;
  kernel.code = std::move(result.code);
  kernel.compiler = std::move(result.compiler);
  kernel.command = std::move(result.command);
  kernel.source_path = std::move(result.source_path);
  return kernel;
}

using EntryPoint = void (*)(const void*);

EntryPoint entry_point(HostKernel& kernel, const std::string& name) {
  void* address = kernel.code->symbol(name);
  if (!address) throw Error(ErrorKind::internal, "compiled host code has no function " + name);
  return reinterpret_cast<EntryPoint>(address);
}

}  // namespace

HostKernel build_host_kernel(const Source& source, SimulatorCompiler compiler) {
  const auto start = std::chrono::steady_clock::now();
  std::string why;
  LlvmPlugin* plugin = compiler == SimulatorCompiler::system ? nullptr : llvm_plugin(&why);
  if (!plugin && compiler == SimulatorCompiler::llvm) {
    throw Error(ErrorKind::environment,
                "the simulator's compiler is to be LLVM, but its plugin cannot be loaded: " + why);
  }
  HostKernel kernel = plugin ? build_with_plugin(*plugin, source) : build_with_system_compiler(source);
  kernel.thunk = entry_point(kernel, source.kernel_name + "_thunk");
  if (source.before) kernel.before = entry_point(kernel, source.before->name + "_thunk");
  if (source.after) kernel.after = entry_point(kernel, source.after->name + "_thunk");
  kernel.bind = entry_point(kernel, source.kernel_name + "_bind");
  kernel.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return kernel;
}

}  // namespace tilewright
