// What the plugin and the library say to each other. No exception crosses: each side may have a C++ runtime
// of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/emit.h"
#include "runtime/llvm_plugin.h"

namespace tilewright {

struct PluginResult {
  bool ok = false;
  std::string ptx;                 // of compile_ptx
  std::unique_ptr<HostCode> code;  // of compile_host
  std::string error;               // what failed, for people
  std::string log;                 // clang's diagnostics, on success too
};

class PluginBoundary {
 public:
  virtual ~PluginBoundary() = default;
  virtual std::string version() noexcept = 0;                     // of LLVM
  virtual bool knows(const std::string& processor) noexcept = 0;  // "sm_90a"
  virtual std::string newest_processor() noexcept = 0;
  /// clang -cc1 options for a processor, "-target-cpu sm_90a" among them.
  virtual std::vector<std::string> ptx_options(const std::string& processor) noexcept = 0;
  virtual std::vector<std::string> host_options() noexcept = 0;
  virtual PluginResult compile_ptx(const Source& source, const std::string& processor) noexcept = 0;
  virtual PluginResult compile_host(const Source& source) noexcept = 0;
};

/// The plugin's one exported function. Null if the library's version is not the one it was built with.
inline constexpr const char* plugin_entry_name = "tilewright_llvm_plugin";
using PluginEntry = PluginBoundary* (*)(const char* tilewright_version);

}  // namespace tilewright
