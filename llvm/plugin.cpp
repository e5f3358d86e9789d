// The plugin's entry: the boundary's functions, with whatever LLVM throws at them turned into results.
#include <cstring>
#include <exception>

#include <llvm/Config/llvm-config.h>

#include "llvm/boundary.h"
#include "llvm/host.h"
#include "llvm/ptx.h"

namespace tilewright::llvm_plugin_internal {
namespace {

template <class Compile>
PluginResult guarded(Compile&& compile) noexcept {
  try {
    return compile();
  } catch (const std::exception& error) {
    PluginResult result;
    result.error = std::string("LLVM failed: ") + error.what();
    return result;
  }
}

class Plugin : public PluginBoundary {
 public:
  Plugin() {
    initialise_ptx();
    initialise_host();
  }
  std::string version() noexcept override { return LLVM_VERSION_STRING; }
  bool knows(const std::string& processor) noexcept override { return knows_processor(processor); }
  std::string newest_processor() noexcept override { return llvm_plugin_internal::newest_processor(); }
  std::vector<std::string> ptx_options(const std::string& processor) noexcept override {
    return llvm_plugin_internal::ptx_options(processor);
  }
  std::vector<std::string> host_options() noexcept override { return llvm_plugin_internal::host_options(); }
  PluginResult compile_ptx(const Source& source, const std::string& processor) noexcept override {
    return guarded([&] { return llvm_plugin_internal::compile_ptx(source, processor); });
  }
  PluginResult compile_host(const Source& source) noexcept override {
    return guarded([&] { return llvm_plugin_internal::compile_host(source); });
  }
};

}  // namespace
}  // namespace tilewright::llvm_plugin_internal

extern "C" __attribute__((visibility("default"))) tilewright::PluginBoundary* tilewright_llvm_plugin(
    const char* tilewright_version) {
  if (std::strcmp(tilewright_version, TILEWRIGHT_VERSION) != 0) return nullptr;
  // Never destroyed: threads may still compile while the process ends.
  static auto* plugin = new tilewright::llvm_plugin_internal::Plugin;
  return plugin;
}
