// Finds and loads libtilewright-llvm.so, and turns its results into the library's own types and exceptions.
#include "runtime/llvm_plugin.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "codegen/error.h"
#include "llvm/boundary.h"
#include "runtime/environment.h"
#include "simulator/scratch_directory.h"

namespace tilewright {
namespace {

constexpr const char* plugin_file = "libtilewright-llvm.so";

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

[[noreturn]] void throw_compile_error(const PluginResult& result, const Source& source,
                                      const std::string& command) {
  ScratchDirectory directory;
  directory.keep();
  const std::string path = directory.write(source.file_name, source.text);
  throw CompileError(result.error + "; the source is kept in " + path +
                         (result.log.empty() ? "" : ":\n" + result.log.substr(0, 2000)),
                     result.log, command + " " + path, path);
}

class PtxCompiler : public Compiler {
 public:
  explicit PtxCompiler(PluginBoundary& plugin) : plugin_(plugin) {}

  std::string identity() override { return "clang " + plugin_.version(); }

  std::vector<std::string> options(const Target& target, bool) override {
    return plugin_.ptx_options(std::string(target.name));
  }

  CompiledImage compile(const Source& source, const Target& target, bool) override {
    const std::string processor(target.name);
    if (!plugin_.knows(processor)) {
      throw Error(ErrorKind::environment, "LLVM " + plugin_.version() + " does not know the target " +
                                              processor + "; the newest it compiles for is " +
                                              plugin_.newest_processor() + "; use the NVRTC compiler for " +
                                              processor);
    }
    const auto start = std::chrono::steady_clock::now();
    const std::string command = "clang -cc1 " + join(options(target, true));
    PluginResult result = plugin_.compile_ptx(source, processor);
    if (!result.ok) throw_compile_error(result, source, command);
    CompiledImage compiled;
    compiled.image = std::move(result.ptx);
    compiled.is_ptx = true;
    compiled.report.compiler = identity();
    compiled.report.command = command;
    compiled.report.shared_memory = source.shared_memory;
    std::istringstream log(result.log);
    for (std::string line; std::getline(log, line);) {
      if (line.find("warning: ") != std::string::npos) compiled.report.notes.push_back(line);
    }
    compiled.report.milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return compiled;
  }

 private:
  PluginBoundary& plugin_;
};

class LoadedPlugin : public LlvmPlugin {
 public:
  explicit LoadedPlugin(PluginBoundary& plugin) : plugin_(plugin), ptx_compiler_(plugin) {}
  std::string version() override { return plugin_.version(); }
  Compiler& device_compiler() override { return ptx_compiler_; }
  std::unique_ptr<HostCode> compile_host(const Source& source) override {
    PluginResult result = plugin_.compile_host(source);
    if (!result.ok) throw_compile_error(result, source, "clang -cc1 " + join(plugin_.host_options()));
    return std::move(result.code);
  }

 private:
  PluginBoundary& plugin_;
  PtxCompiler ptx_compiler_;
};

std::vector<std::string> candidate_paths() {
  // What the user names is the only candidate: falling back to another one would hide a mistyped path.
  if (const auto chosen = environment(Variable::llvm_plugin)) return {*chosen};
  std::vector<std::string> paths;
  const auto add_near = [&](const std::filesystem::path& file) {
    for (const char* folder : {"", "../lib"}) {
      paths.push_back((file.parent_path() / folder / plugin_file).lexically_normal().string());
    }
  };
  Dl_info library;
  std::error_code code;
  if (dladdr(reinterpret_cast<const void*>(&llvm_plugin), &library) != 0 && library.dli_fname) {
    const std::filesystem::path file = std::filesystem::canonical(library.dli_fname, code);
    if (!code) add_near(file);
  }
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", code);
  if (!code) add_near(executable);
  return paths;
}

struct LoadResult {
  std::unique_ptr<LoadedPlugin> plugin;
  std::string why;
};

// Each path is tried at most once; a file that is there but does not load is worth saying so.
LoadResult load() {
  std::vector<std::string> paths = candidate_paths();
  if (!environment(Variable::llvm_plugin)) paths.push_back(plugin_file);  // the loader's path
  std::string why;
  for (const std::string& path : paths) {
    const bool bare = path.find('/') == std::string::npos;
    if (!bare && !std::filesystem::exists(path)) {
      why += "\n  " + path + ": no such file";
      continue;
    }
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      why += std::string("\n  ") + dlerror();
      continue;
    }
    const auto entry = reinterpret_cast<PluginEntry>(dlsym(handle, plugin_entry_name));
    PluginBoundary* plugin = entry ? entry(TILEWRIGHT_VERSION) : nullptr;
    if (plugin) return {std::make_unique<LoadedPlugin>(*plugin), ""};
    why += "\n  " + path +
           (entry ? ": made for another version of Tilewright than " TILEWRIGHT_VERSION
                  : ": not a Tilewright plugin");
  }
  return {nullptr, std::string("no ") + plugin_file + " could be loaded; tried:" + why};
}

}  // namespace

LlvmPlugin* llvm_plugin(std::string* why) {
  static const LoadResult result = load();
  if (why) *why = result.why;
  return result.plugin.get();
}

}  // namespace tilewright
