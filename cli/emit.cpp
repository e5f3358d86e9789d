// tilewright emit: the generated source of a spec, or its PTX. Needs no GPU.
#include "codegen/emit.h"

#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <string>

#include "cli/choices.h"
#include "cli/command.h"
#include "cli/output.h"
#include "runtime/build.h"
#include "runtime/llvm_plugin.h"
#include "tilewright/tilewright.hpp"

namespace tilewright::cli {
namespace {

struct Options {
  std::string file;
  std::string target;
  std::string output;
  std::string compiler = "nvrtc";
  std::string bucket = "long";
  bool ptx = false;
  bool simulator = false;
  bool no_cache = false;
};

std::string ptx_by_llvm(const Source& source, const Target& target) {
  std::string why;
  LlvmPlugin* plugin = llvm_plugin(&why);
  if (!plugin) throw Error(ErrorKind::environment, "the LLVM plugin cannot be loaded: " + why);
  return plugin->device_compiler().compile(source, target, true).image;
}

std::string text_of(const Options& options) {
  AttentionSpec spec = load_spec(options.file);
  const Target& target = chosen_target(options.target);
  const std::optional<GpuModel> gpu = gpu_of_target(target);
  const ShapeBucket& bucket = bucket_by_name(options.bucket);
  const Schedule schedule = usable_records({}).decide(spec, target, gpu ? &*gpu : nullptr, bucket).schedule;
  if (options.ptx && options.compiler == "nvrtc") {
    RuntimeOptions runtime;
    runtime.disk_cache = !options.no_cache;
    return compile(spec, schedule, target, runtime, true).image;
  }
  Backend backend = options.simulator ? Backend::simulator : Backend::device;
  Source source = emit(spec, schedule, target, backend);
  return options.ptx ? ptx_by_llvm(source, target) : source.text;
}

int emit_text(const Options& options) {
  std::string text = text_of(options);
  if (options.output.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return exit_ok;
  }
  std::ofstream stream(options.output, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  if (!stream) throw Error(ErrorKind::environment, options.output + " cannot be written");
  return exit_ok;
}

}  // namespace

Command add_emit(CLI::App& root) {
  CLI::App* app =
      root.add_subcommand("emit", "Print the CUDA source of a spec's kernel, or its PTX; needs no GPU");
  auto options = std::make_shared<Options>();
  app->add_option("SPEC", options->file, "Spec file")->required();
  app->add_option("--target", options->target, "Target (default: this machine's GPU, else sm_80)");
  app->add_option(
      "--bucket", options->bucket,
      "Which launches it is for, where the schedule depends on that: few, short or long (default long)");
  CLI::Option* ptx = app->add_flag("--ptx", options->ptx, "PTX instead of source");
  app->add_option("--compiler", options->compiler, "What compiles to PTX: nvrtc or llvm (default nvrtc)")
      ->check(CLI::IsMember({"nvrtc", "llvm"}))
      ->needs(ptx);
  app->add_flag("--simulator", options->simulator, "The simulator's variant of the source")->excludes(ptx);
  app->add_flag("--no-cache", options->no_cache, "Leave the disk cache alone")->needs(ptx);
  app->add_option("-o,--output", options->output, "File to write (default: stdout)");
  return {app, [options] { return emit_text(*options); }};
}

}  // namespace tilewright::cli
