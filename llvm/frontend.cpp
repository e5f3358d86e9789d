#include "llvm/frontend.h"

#include <clang/Basic/DiagnosticOptions.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/TextDiagnosticBuffer.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <clang/Lex/PreprocessorOptions.h>
#include <llvm/Support/raw_ostream.h>

namespace tilewright::llvm_plugin_internal {

std::unique_ptr<llvm::Module> compile_to_module(llvm::LLVMContext& context, const std::string& text,
                                                const std::string& file_name,
                                                const std::vector<std::string>& options, std::string& log) {
  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  arguments.push_back(file_name.c_str());

  llvm::raw_string_ostream stream(log);
  clang::CompilerInstance compiler;
  compiler.setVerboseOutputStream(std::make_unique<llvm::raw_null_ostream>());  // "1 error generated."
  llvm::IntrusiveRefCntPtr<clang::DiagnosticOptions> diagnostic_options(new clang::DiagnosticOptions);
  clang::DiagnosticsEngine option_diagnostics(
      new clang::DiagnosticIDs, diagnostic_options,
      new clang::TextDiagnosticPrinter(stream, diagnostic_options.get()));
  if (!clang::CompilerInvocation::CreateFromArgs(compiler.getInvocation(), arguments, option_diagnostics))
    return nullptr;

  compiler.getPreprocessorOpts().addRemappedFile(
      file_name, llvm::MemoryBuffer::getMemBufferCopy(text, file_name).release());
  // createDiagnostics, not setDiagnostics: this one applies the warning options.
  compiler.createDiagnostics(new clang::TextDiagnosticPrinter(stream, &compiler.getDiagnosticOpts()), true);
  clang::EmitLLVMOnlyAction action(&context);
  return compiler.ExecuteAction(action) ? action.takeModule() : nullptr;
}

}  // namespace tilewright::llvm_plugin_internal
