#include "llvm/host.h"

#include <cstring>

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ThreadSafeModule.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>

#include "llvm/frontend.h"

namespace tilewright::llvm_plugin_internal {
namespace {

class JitCode : public HostCode {
 public:
  explicit JitCode(std::unique_ptr<llvm::orc::LLJIT> jit) : jit_(std::move(jit)) {}

  void* symbol(const std::string& name) override {
    llvm::Expected<llvm::orc::ExecutorAddr> address = jit_->lookup(name);
    if (address) return address->toPtr<void*>();
    llvm::consumeError(address.takeError());
    return nullptr;
  }

 private:
  std::unique_ptr<llvm::orc::LLJIT> jit_;
};

template <class Function>
void define(llvm::orc::LLJIT& jit, llvm::orc::SymbolMap& symbols, const char* name, Function* function) {
  symbols[jit.mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(function),
                                        llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
}

// At -O0 a compile takes 15 ms instead of 160, and the kernels spend their time in the simulator anyway.
llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> make_jit() {
  llvm::orc::JITTargetMachineBuilder machine{llvm::Triple(llvm::sys::getProcessTriple())};
  machine.setCodeGenOptLevel(llvm::CodeGenOptLevel::None);
  llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> jit =
      llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(machine)).create();
  if (!jit) return jit;
  // All that compiled code may want besides SimulatorInterface: clang calls these for structs and arrays.
  llvm::orc::SymbolMap symbols;
  define(**jit, symbols, "memcpy", &std::memcpy);
  define(**jit, symbols, "memmove", &std::memmove);
  define(**jit, symbols, "memset", &std::memset);
  if (llvm::Error error = (*jit)->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols)))) {
    return error;
  }
  return jit;
}

// `details` is what ORC says on the side: the names of missing symbols, for example.
bool failed(llvm::Error error, const std::string& details, PluginResult& result) {
  if (!error) return false;
  result.error = "the compiled host code cannot be linked: " + llvm::toString(std::move(error));
  if (!details.empty()) result.error += " (" + details + ")";
  return true;
}

}  // namespace

void initialise_host() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
}

std::vector<std::string> host_options() {
  return {"-triple",
          llvm::sys::getProcessTriple(),
          "-x",
          "c++",
          "-std=c++20",
          "-O0",
          "-mrelocation-model",
          "pic",
          "-pic-level",
          "2",
          "-nostdsysteminc",
          "-nobuiltininc",
          "-w"};
}

PluginResult compile_host(const Source& source) {
  PluginResult result;
  auto context = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::Module> module =
      compile_to_module(*context, source.text, source.file_name, host_options(), result.log);
  if (!module) {
    result.error = "clang refused the generated source";
    return result;
  }
  llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> jit = make_jit();
  if (!jit) {
    failed(jit.takeError(), "", result);
    return result;
  }
  std::string details;
  llvm::orc::ExecutionSession& session = (*jit)->getExecutionSession();
  session.setErrorReporter([&](llvm::Error error) { details += llvm::toString(std::move(error)); });
  module->setDataLayout((*jit)->getDataLayout());
  llvm::Error added = (*jit)->addIRModule(llvm::orc::ThreadSafeModule(std::move(module), std::move(context)));
  if (failed(std::move(added), details, result)) return result;
  // Link now, so that a missing symbol is an error here and not later.
  llvm::Error linked = (*jit)->lookup(source.kernel_name + "_thunk").takeError();
  if (failed(std::move(linked), details, result)) return result;
  session.setErrorReporter([](llvm::Error error) { llvm::consumeError(std::move(error)); });
  result.code = std::make_unique<JitCode>(std::move(*jit));
  result.ok = true;
  return result;
}

}  // namespace tilewright::llvm_plugin_internal
