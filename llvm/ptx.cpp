#include "llvm/ptx.h"

#include <cstdlib>
#include <optional>

#include <llvm/IR/Constants.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include "llvm/frontend.h"

namespace tilewright::llvm_plugin_internal {
namespace {

constexpr const char* triple = "nvptx64-nvidia-cuda";

const llvm::Target* nvptx() {
  std::string ignored;
  return llvm::TargetRegistry::lookupTarget(triple, ignored);
}

std::unique_ptr<llvm::MCSubtargetInfo> subtarget() {
  return std::unique_ptr<llvm::MCSubtargetInfo>(nvptx()->createMCSubtargetInfo(triple, "", ""));
}

// The lowest PTX version that has the processor: drivers refuse to translate PTX newer than themselves.
std::string ptx_feature(const std::string& processor) {
  const int number = std::atoi(processor.c_str() + 3);  // of "sm_90a"
  if (processor == "sm_90a") return "+ptx80";
  if (number >= 89) return "+ptx78";
  if (number >= 87) return "+ptx74";
  if (number >= 86) return "+ptx71";
  return "+ptx70";
}

// clang 19 ignores __grid_constant__, and a parameter whose address the kernel takes would be copied to local
// memory: an instruction that wants the parameter itself would get the copy. The annotation forbids it.
void mark_parameters_constant(llvm::Module& module) {
  llvm::NamedMDNode* annotations = module.getNamedMetadata("nvvm.annotations");
  if (!annotations) return;
  std::vector<llvm::Function*> kernels;
  for (const llvm::MDNode* node : annotations->operands()) {
    const auto* kind =
        node->getNumOperands() > 1 ? llvm::dyn_cast<llvm::MDString>(node->getOperand(1)) : nullptr;
    auto* kernel = llvm::mdconst::dyn_extract_or_null<llvm::Function>(node->getOperand(0));
    if (kind && kernel && kind->getString() == "kernel") kernels.push_back(kernel);
  }
  llvm::LLVMContext& context = module.getContext();
  for (llvm::Function* kernel : kernels) {
    std::vector<llvm::Metadata*> positions;  // counted from 1
    for (const llvm::Argument& argument : kernel->args()) {
      if (!argument.hasByValAttr()) continue;
      positions.push_back(llvm::ConstantAsMetadata::get(
          llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), argument.getArgNo() + 1)));
    }
    if (positions.empty()) continue;
    annotations->addOperand(llvm::MDNode::get(
        context, {llvm::ConstantAsMetadata::get(kernel), llvm::MDString::get(context, "grid_constant"),
                  llvm::MDNode::get(context, positions)}));
  }
}

std::string to_ptx(llvm::Module& module, const std::string& processor, std::string& error) {
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;  // else ptxas may not fuse multiply and add
  const std::unique_ptr<llvm::TargetMachine> machine(
      nvptx()->createTargetMachine(triple, processor, ptx_feature(processor), options, std::nullopt,
                                   std::nullopt, llvm::CodeGenOptLevel::Aggressive));
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if (!machine ||
      machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile)) {
    error = "LLVM cannot emit PTX for " + processor;
    return "";
  }
  passes.run(module);
  return std::string(text);
}

}  // namespace

void initialise_ptx() {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  // Loop strength reduction keeps a 64-bit pointer for every address of a copy and costs a tenth of the
  // registers. The option is the process's: set once, before any compile.
  const auto option = llvm::cl::getRegisteredOptions().find("disable-lsr");
  if (option != llvm::cl::getRegisteredOptions().end()) {
    static_cast<llvm::cl::opt<bool>*>(option->second)->setValue(true);
  }
}

bool knows_processor(const std::string& processor) {
  return subtarget()->isCPUStringValid(processor);
}

std::string newest_processor() {
  std::string newest;
  int newest_number = 0;
  for (const auto& description : subtarget()->getAllProcessorDescriptions()) {
    const std::string name = description.Key;
    if (name.rfind("sm_", 0) != 0) continue;
    const int number = std::atoi(name.c_str() + 3);
    if (number < newest_number || (number == newest_number && name.size() < newest.size())) continue;
    newest = name;
    newest_number = number;
  }
  return newest;
}

std::vector<std::string> ptx_options(const std::string& processor) {
  return {"-triple",
          triple,
          "-fcuda-is-device",
          "-target-cpu",
          processor,
          "-target-feature",
          ptx_feature(processor),
          "-x",
          "cuda",
          "-O3",
          "-std=c++20",
          "-nostdsysteminc",
          "-nobuiltininc",
          "-ffp-contract=fast",
          "-vectorize-slp"};
}

PluginResult compile_ptx(const Source& source, const std::string& processor) {
  PluginResult result;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module =
      compile_to_module(context, source.text, source.file_name, ptx_options(processor), result.log);
  if (!module) {
    result.error = "clang refused the generated source";
    return result;
  }
  // A copy, because the back end remembers annotations by the module's address and would not see the new
  // ones.
  module = llvm::CloneModule(*module);
  mark_parameters_constant(*module);
  result.ptx = to_ptx(*module, processor, result.error);
  result.ok = result.error.empty();
  return result;
}

}  // namespace tilewright::llvm_plugin_internal
