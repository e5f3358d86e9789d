// clang in process: source text to an LLVM module.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

namespace tilewright::llvm_plugin_internal {

/// Compiles `text`, which includes nothing, under clang -cc1 options. Null if clang refuses it; `log`
/// receives the diagnostics either way.
std::unique_ptr<llvm::Module> compile_to_module(llvm::LLVMContext& context, const std::string& text,
                                                const std::string& file_name,
                                                const std::vector<std::string>& options, std::string& log);

}  // namespace tilewright::llvm_plugin_internal
