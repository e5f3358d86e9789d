// Generated source to PTX.
#pragma once

#include <string>
#include <vector>

#include "llvm/boundary.h"

namespace tilewright::llvm_plugin_internal {

/// Registers LLVM's NVPTX target; once a process, before anything below.
void initialise_ptx();

bool knows_processor(const std::string& processor);
std::string newest_processor();
std::vector<std::string> ptx_options(const std::string& processor);
PluginResult compile_ptx(const Source& source, const std::string& processor);

}  // namespace tilewright::llvm_plugin_internal
