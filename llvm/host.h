// Generated source for the simulator to machine code in memory.
#pragma once

#include <string>
#include <vector>

#include "llvm/boundary.h"

namespace tilewright::llvm_plugin_internal {

/// Registers LLVM's target for this machine; once a process, before anything below.
void initialise_host();

std::vector<std::string> host_options();
PluginResult compile_host(const Source& source);

}  // namespace tilewright::llvm_plugin_internal
