#include "runtime/nvrtc.h"

#include <chrono>
#include <mutex>
#include <optional>

#include "codegen/error.h"
#include "runtime/compiler_log.h"
#include "runtime/elf.h"
#include "runtime/nvrtc_library.h"

namespace tilewright {
namespace {

int capability(const Target& target) {
  return 10 * target.major + target.minor;
}

/// "sm_90a" for machine code. PTX is asked for without the suffix, so that newer devices can translate it.
std::string architecture_option(const Target& target, bool as_ptx) {
  if (!as_ptx) return "--gpu-architecture=" + std::string(target.name);
  return "--gpu-architecture=compute_" + std::to_string(capability(target));
}

/// The first release that makes code for a compute capability, where it is known.
std::string first_release_for(int capability) {
  switch (capability) {
    case 100:
    case 101:
    case 120:
      return "12.8";
    case 103:
    case 121:
      return "12.9";
    case 88:
    case 110:
      return "13.0";
    default:
      return capability <= 90 ? "12.0" : "a newer one";
  }
}

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

struct Program {
  const NvrtcLibrary& library;
  nvrtcProgram handle = nullptr;

  Program(const NvrtcLibrary& nvrtc, const Source& source) : library(nvrtc) {
    check(library.create(&handle, source.text.c_str(), source.file_name.c_str(), 0, nullptr, nullptr),
          "create a program");
  }
  ~Program() { library.destroy(&handle); }

  void check(nvrtcResult result, const char* action) const {
    if (result != NVRTC_SUCCESS)
      throw Error(ErrorKind::environment, library.version_text() + " (" + library.file.string() +
                                              ") cannot " + action + ": " + library.error_string(result));
  }

  std::string log() const {
    size_t size = 0;
    if (library.log_size(handle, &size) != NVRTC_SUCCESS || size <= 1) return {};
    std::string text(size, '\0');
    library.log(handle, text.data());
    text.resize(size - 1);  // without the terminating zero
    return text;
  }

  std::string image(bool as_ptx) const {
    size_t size = 0;
    check(as_ptx ? library.ptx_size(handle, &size) : library.cubin_size(handle, &size),
          "tell the image's size");
    std::string bytes(size, '\0');
    check(as_ptx ? library.ptx(handle, bytes.data()) : library.cubin(handle, bytes.data()),
          "hand out the image");
    if (as_ptx && !bytes.empty() && bytes.back() == '\0') bytes.pop_back();
    return bytes;
  }
};

class NvrtcCompiler final : public Compiler {
 public:
  explicit NvrtcCompiler(std::filesystem::path file) : file_(std::move(file)) {}

  // The version number alone would not do: releases differ below it.
  std::string identity() override {
    std::lock_guard lock(mutex_);
    if (identity_.empty()) identity_ = "nvrtc " + library_fingerprint(file_);
    return identity_;
  }

  std::vector<std::string> options(const Target& target, bool as_ptx) override {
    return {architecture_option(target, as_ptx), "--std=c++17", "--ptxas-options=-v", "--diag-suppress=177",
            "--modify-stack-limit=false"};
  }

  CompiledImage compile(const Source& source, const Target& target, bool as_ptx) override {
    const NvrtcLibrary& nvrtc = library();
    CompiledImage compiled;
    compiled.is_ptx = as_ptx;
    auto all_options = options(target, as_ptx);
    if (!nvrtc.knows(capability(target))) {
      int older = newest_usable(nvrtc, target);
      compiled.is_ptx = true;
      all_options[0] = "--gpu-architecture=compute_" + std::to_string(older);
      compiled.report.notes.push_back(nvrtc.version_text() + " does not know " + std::string(target.name) +
                                      " (" + first_release_for(capability(target)) +
                                      " does): made PTX for compute_" + std::to_string(older) +
                                      ", which the driver translates");
    }
    // A cache of NVRTC's own, from 13.0 on, would hide what is measured here; the output is the same.
    if (nvrtc.major >= 13) all_options.push_back("--no-cache");

    auto begin = std::chrono::steady_clock::now();
    Program program(nvrtc, source);
    std::vector<const char*> pointers;
    for (const auto& option : all_options) {
      pointers.push_back(option.c_str());
      compiled.report.command += (compiled.report.command.empty() ? "nvrtc " : " ") + option;
    }
    nvrtcResult result = nvrtc.compile(program.handle, static_cast<int>(pointers.size()), pointers.data());
    std::string log = program.log();
    if (result != NVRTC_SUCCESS) refuse(nvrtc, target, result, log, compiled.report.command);
    compiled.image = program.image(compiled.is_ptx);
    std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
    compiled.report.compiler = nvrtc.version_text();
    compiled.report.milliseconds = elapsed.count();
    compiled.report.shared_memory = source.shared_memory;
    read_compiler_log(log, compiled.report);
    return compiled;
  }

 private:
  const NvrtcLibrary& library() {
    std::lock_guard lock(mutex_);
    if (!library_) library_ = load_nvrtc(file_);
    return *library_;
  }

  /// The newest architecture whose PTX a device of the target can run. Kernels of the sm80 family need 8.0.
  static int newest_usable(const NvrtcLibrary& nvrtc, const Target& target) {
    int best = 0;
    for (int architecture : nvrtc.known_architectures)
      if (architecture >= 80 && architecture <= capability(target)) best = architecture;
    if (best) return best;
    throw Error(ErrorKind::environment,
                nvrtc.version_text() + " (" + nvrtc.file.string() + ") knows compute capabilities " +
                    capability_text(nvrtc.known_architectures.front()) + " to " +
                    capability_text(nvrtc.known_architectures.back()) + " and cannot serve " +
                    std::string(target.name) + "; NVRTC " + first_release_for(capability(target)) + " can");
  }

  [[noreturn]] static void refuse(const NvrtcLibrary& nvrtc, const Target& target, nvrtcResult result,
                                  const std::string& log, const std::string& command) {
    std::string version = std::to_string(nvrtc.major) + "." + std::to_string(nvrtc.minor);
    if (log.find("libnvrtc-builtins") != std::string::npos)
      throw Error(ErrorKind::environment,
                  "NVRTC is incomplete: " + nvrtc.file.string() + " is version " + version +
                      " and cannot open its companion libnvrtc-builtins.so." + version + ", tried " +
                      (nvrtc.file.parent_path() / ("libnvrtc-builtins.so." + version)).string() +
                      " and the loader's path; install both from the same release. NVRTC says: " + log);
    std::string message = nvrtc.version_text() + " refused the source for " + std::string(target.name) +
                          ": " + nvrtc.error_string(result);
    throw CompileError(message, log, command, "");
  }

  const std::filesystem::path file_;
  std::mutex mutex_;
  std::string identity_;
  std::optional<NvrtcLibrary> library_;
};

}  // namespace

std::unique_ptr<Compiler> make_nvrtc_compiler(const std::filesystem::path& file) {
  return std::make_unique<NvrtcCompiler>(file);
}

Compiler& nvrtc_compiler() {
  static Compiler* const compiler = make_nvrtc_compiler(find_nvrtc()).release();
  return *compiler;
}

}  // namespace tilewright
