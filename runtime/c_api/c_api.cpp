#include <tilewright/tilewright.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/bundle.h"
#include "runtime/include/tilewright/tilewright.hpp"

using namespace tilewright;

struct tw_runtime {
  explicit tw_runtime(const RuntimeOptions& options) : runtime(options) {}
  Runtime runtime;
  std::string info;
};

struct tw_kernel {
  std::shared_ptr<const Kernel> kernel;
  std::string info;
};

namespace {

struct LastError {
  tw_status status = TW_OK;
  std::string message;
};
thread_local LastError last_error;

tw_status fail(tw_status status, const char* message) {
  last_error.status = status;
  try {
    last_error.message = message;
  } catch (const std::bad_alloc&) {
    last_error.message.clear();  // keeps the status at least
  }
  return status;
}

tw_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return TW_ERROR_USAGE;
    case ErrorKind::spec:
      return TW_ERROR_SPEC;
    case ErrorKind::environment:
      return TW_ERROR_ENVIRONMENT;
    case ErrorKind::compile:
      return TW_ERROR_COMPILE;
    case ErrorKind::device:
      return TW_ERROR_DEVICE;
    case ErrorKind::internal:
      return TW_ERROR_INTERNAL;
  }
  return TW_ERROR_INTERNAL;
}

/// Runs what may throw; no exception passes.
template <typename Action>
tw_status guarded(const Action& action) noexcept {
  try {
    action();
    return TW_OK;
  } catch (const Error& error) {
    return fail(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(TW_ERROR_ENVIRONMENT, "out of memory");
  } catch (const std::exception& error) {
    return fail(TW_ERROR_INTERNAL, error.what());
  } catch (...) {
    return fail(TW_ERROR_INTERNAL, "an unknown exception");
  }
}

void require(const void* pointer, const char* what) {
  if (!pointer) throw Error(ErrorKind::usage, std::string(what) + " is null");
}

RuntimeOptions options_of(const tw_options* given) {
  RuntimeOptions options;
  if (!given) return options;
  if (given->size != sizeof(tw_options))
    throw Error(ErrorKind::usage, "tw_options.size is " + std::to_string(given->size) + ", expected " +
                                      std::to_string(sizeof(tw_options)) + ": fill it with tw_options_init");
  if (given->device < TW_DEVICE_AUTOMATIC || given->device > TW_DEVICE_SIMULATOR)
    throw Error(ErrorKind::usage,
                "tw_options.device is " + std::to_string(given->device) + ", expected 0 to 2");
  if (given->simulator_compiler < TW_SIMULATOR_COMPILER_AUTOMATIC ||
      given->simulator_compiler > TW_SIMULATOR_COMPILER_SYSTEM)
    throw Error(ErrorKind::usage, "tw_options.simulator_compiler is " +
                                      std::to_string(given->simulator_compiler) + ", expected 0 to 2");
  options.device.kind = static_cast<DeviceChoice::Kind>(given->device);
  options.device.ordinal = given->ordinal;
  if (given->cache_directory) options.cache_directory = given->cache_directory;
  options.disk_cache = given->disk_cache != 0;
  options.simulator.compiler = static_cast<SimulatorCompiler>(given->simulator_compiler);
  options.simulator.seed = given->simulator_seed;
  options.simulator.check_races = given->simulator_check_races != 0;
  options.compiling = given->compiling != 0;
  if (given->bundles) options.bundles = path_list(given->bundles);
  if (given->simulated_target) options.simulated_target = given->simulated_target;
  return options;
}

std::optional<Dropout> dropout_of(const tw_dropout* given) {
  if (!given) return std::nullopt;
  return Dropout{.rate = given->rate, .seed = given->seed, .offset = given->offset};
}

TensorView view_of(const tw_tensor* tensor, const char* name) {
  require(tensor, name);
  if (tensor->rank < 0 || tensor->rank > 4)
    throw Error(ErrorKind::usage,
                std::string(name) + " has " + std::to_string(tensor->rank) + " dimensions, expected 3 or 4");
  if (tensor->dtype < TW_FP16 || tensor->dtype > TW_BOOL)
    throw Error(ErrorKind::usage,
                std::string(name) + " has dtype " + std::to_string(tensor->dtype) + ", expected 0 to 6");
  return {.data = tensor->data,
          .dtype = static_cast<DataType>(tensor->dtype),
          .shape = {tensor->shape, tensor->shape + tensor->rank},
          .strides = {tensor->strides, tensor->strides + tensor->rank}};
}

/// What a launch gives to expressions, of tw_forward or tw_backward.
template <typename Given, typename Arguments>
void take_expressions(const Given& given, Arguments& arguments) {
  if (given.scalar_count) require(given.scalars, "scalars");
  if (given.tensor_count) require(given.tensors, "tensors");
  for (size_t i = 0; i < given.scalar_count; ++i) {
    require(given.scalars[i].name, "a scalar's name");
    arguments.scalars[given.scalars[i].name] = given.scalars[i].value;
  }
  for (size_t i = 0; i < given.tensor_count; ++i) {
    require(given.tensors[i].name, "a tensor's name");
    arguments.tensors[given.tensors[i].name] = view_of(&given.tensors[i].tensor, given.tensors[i].name);
  }
}

std::optional<TensorView> optional_view(const tw_tensor* tensor, const char* name) {
  return tensor ? std::optional(view_of(tensor, name)) : std::nullopt;
}

std::string runtime_info(const Runtime& runtime) {
  nlohmann::ordered_json json = {
      {"version", version()},
      {"device", runtime.device_name()},
      {"simulator", runtime.is_simulator()},
      {"target", runtime.target().name},
      {"generation", runtime.target().generation},
  };
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string kernel_info(const Kernel& kernel, CacheResult from) {
  const AttentionSpec& spec = kernel.spec();
  const CompileReport& report = kernel.report();
  const char* origins[] = {"memory", "bundle", "disk", "compiled"};
  nlohmann::ordered_json json = {
      {"spec", canonical_form(spec)},
      {"target", kernel.target().name},
      {"schedule", describe(kernel.schedule())},
      {"from", origins[static_cast<int>(from)]},
      {"compiler", report.compiler},
      {"command", report.command},
      {"compile_ms", report.milliseconds},
      {"registers", report.registers},
      {"spill_bytes", report.spill_bytes},
      {"shared_memory", report.shared_memory},
      {"threads", kernel.source().threads},
      {"notes", report.notes},
      {"lse", spec.lse},
      {"softmax_scale_at_launch", spec.softmax_scale_at_launch},
      {"head_dim_qk", spec.head_dim.qk},
      {"head_dim_v", spec.head_dim.v},
      {"gqa_ratio", spec.gqa_ratio},
      {"dtype_q", name_of(spec.dtype.q)},
      {"dtype_kv", name_of(spec.dtype.kv)},
      {"dtype_out", name_of(spec.dtype.out)},
      {"layout", name_of(spec.layout)},
  };
  for (const KernelVariant& variant : kernel.variants())
    json["variants"].push_back({{"buckets", variant.buckets},
                                {"schedule", describe(variant.schedule)},
                                {"registers", variant.report.registers},
                                {"spill_bytes", variant.report.spill_bytes},
                                {"shared_memory", variant.report.shared_memory}});
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

extern "C" {

const char* tw_version(void) {
  static const std::string text(version());
  return text.c_str();
}

const char* tw_last_error(void) {
  return last_error.message.c_str();
}
tw_status tw_last_error_status(void) {
  return last_error.status;
}

void tw_options_init(tw_options* options) {
  if (!options) return;
  *options = tw_options{};
  options->size = sizeof(tw_options);
  options->disk_cache = 1;
  options->compiling = 1;
  options->simulator_check_races = 1;
}

tw_status tw_runtime_create(const tw_options* options, tw_runtime** runtime) {
  return guarded([&] {
    require(runtime, "runtime");
    *runtime = nullptr;
    auto created = std::make_unique<tw_runtime>(options_of(options));
    created->info = runtime_info(created->runtime);
    *runtime = created.release();
  });
}

void tw_runtime_destroy(tw_runtime* runtime) {
  delete runtime;
}

const char* tw_runtime_info(const tw_runtime* runtime) {
  return runtime ? runtime->info.c_str() : "";
}

tw_status tw_kernel_create(tw_runtime* runtime, const char* spec, const char* file, tw_kernel** kernel) {
  return guarded([&] {
    require(kernel, "kernel");
    *kernel = nullptr;
    require(runtime, "runtime");
    require(spec, "spec");
    auto created = std::make_unique<tw_kernel>();
    CacheResult from;
    created->kernel = runtime->runtime.kernel(parse_spec(spec, file ? file : "spec"), &from);
    created->info = kernel_info(*created->kernel, from);
    *kernel = created.release();
  });
}

tw_status tw_kernel_find(const tw_runtime* runtime, const char* spec, const char* file, tw_kernel** kernel) {
  return guarded([&] {
    require(kernel, "kernel");
    *kernel = nullptr;
    require(runtime, "runtime");
    require(spec, "spec");
    auto found = std::make_unique<tw_kernel>();
    found->kernel = runtime->runtime.prepared_kernel(parse_spec(spec, file ? file : "spec"));
    found->info = kernel_info(*found->kernel, CacheResult::memory);
    *kernel = found.release();
  });
}

tw_status tw_runtime_prepare(tw_runtime* runtime, const char* const* specs, const char* const* files,
                             size_t count) {
  return guarded([&] {
    require(runtime, "runtime");
    if (count > 0) require(specs, "specs");
    std::vector<AttentionSpec> parsed;
    for (size_t i = 0; i < count; ++i) {
      require(specs[i], "a spec");
      parsed.push_back(parse_spec(specs[i], files && files[i] ? files[i] : "spec"));
    }
    runtime->runtime.prepare(parsed);
  });
}

void tw_kernel_destroy(tw_kernel* kernel) {
  delete kernel;
}

const char* tw_kernel_info(const tw_kernel* kernel) {
  return kernel ? kernel->info.c_str() : "";
}

const char* tw_kernel_source(const tw_kernel* kernel) {
  return kernel ? kernel->kernel->source().text.c_str() : "";
}

tw_status tw_launch(const tw_kernel* kernel, void* stream, const tw_tensor* q, const tw_tensor* k,
                    const tw_tensor* v, const tw_tensor* out, const tw_tensor* lse,
                    const double* softmax_scale) {
  return guarded([&] {
    require(kernel, "kernel");
    ForwardArguments arguments{
        .q = view_of(q, "q"), .k = view_of(k, "k"), .v = view_of(v, "v"), .out = view_of(out, "out")};
    if (lse) arguments.lse = view_of(lse, "lse");
    if (softmax_scale) arguments.softmax_scale = *softmax_scale;
    kernel->kernel->launch(stream, arguments);
  });
}

tw_status tw_launch_forward(const tw_kernel* kernel, void* stream, const tw_forward* given) {
  return guarded([&] {
    require(kernel, "kernel");
    require(given, "arguments");
    if (given->size != sizeof(tw_forward))
      throw Error(ErrorKind::usage, "tw_forward.size is " + std::to_string(given->size) + ", expected " +
                                        std::to_string(sizeof(tw_forward)));
    ForwardArguments arguments{.q = view_of(given->q, "q"),
                               .k = view_of(given->k, "k"),
                               .v = view_of(given->v, "v"),
                               .out = view_of(given->out, "out")};
    arguments.lse = optional_view(given->lse, "lse");
    if (given->softmax_scale) arguments.softmax_scale = *given->softmax_scale;
    arguments.cu_seqlens_q = optional_view(given->cu_seqlens_q, "cu_seqlens_q");
    arguments.cu_seqlens_kv = optional_view(given->cu_seqlens_kv, "cu_seqlens_kv");
    arguments.seqused_q = optional_view(given->seqused_q, "seqused_q");
    arguments.seqused_kv = optional_view(given->seqused_kv, "seqused_kv");
    arguments.sinks = optional_view(given->sinks, "sinks");
    arguments.block_rows = optional_view(given->block_rows, "block_rows");
    arguments.block_columns = optional_view(given->block_columns, "block_columns");
    take_expressions(*given, arguments);
    arguments.dropout = dropout_of(given->dropout);
    arguments.workspace = given->workspace;
    arguments.workspace_bytes = given->workspace_bytes;
    arguments.tensors_unchanged = given->tensors_unchanged != 0;
    kernel->kernel->launch(stream, arguments,
                           {.programmatic_dependent_launch = given->programmatic_dependent_launch != 0,
                            .sm_margin = given->sm_margin});
  });
}

tw_status tw_launch_backward(const tw_kernel* kernel, void* stream, const tw_backward* arguments) {
  return guarded([&] {
    require(kernel, "kernel");
    require(arguments, "arguments");
    const tw_backward& a = *arguments;
    if (a.size != sizeof(tw_backward))
      throw Error(ErrorKind::usage, "arguments.size is " + std::to_string(a.size) + "; expected " +
                                        std::to_string(sizeof(tw_backward)) + ", sizeof(tw_backward)");
    BackwardArguments launch{.q = view_of(a.q, "q"),
                             .k = view_of(a.k, "k"),
                             .v = view_of(a.v, "v"),
                             .out = view_of(a.out, "out"),
                             .lse = view_of(a.lse, "lse"),
                             .d_out = view_of(a.d_out, "d_out"),
                             .dq = view_of(a.dq, "dq"),
                             .dk = view_of(a.dk, "dk"),
                             .dv = view_of(a.dv, "dv"),
                             .workspace = a.workspace,
                             .workspace_bytes = a.workspace_bytes};
    launch.d_lse = optional_view(a.d_lse, "d_lse");
    launch.cu_seqlens_q = optional_view(a.cu_seqlens_q, "cu_seqlens_q");
    launch.cu_seqlens_kv = optional_view(a.cu_seqlens_kv, "cu_seqlens_kv");
    launch.seqused_q = optional_view(a.seqused_q, "seqused_q");
    launch.seqused_kv = optional_view(a.seqused_kv, "seqused_kv");
    launch.sinks = optional_view(a.sinks, "sinks");
    launch.d_sinks = optional_view(a.d_sinks, "d_sinks");
    launch.d_bias = optional_view(a.d_bias, "d_bias");
    take_expressions(a, launch);
    launch.dropout = dropout_of(a.dropout);
    if (a.softmax_scale) launch.softmax_scale = *a.softmax_scale;
    kernel->kernel->launch_backward(stream, launch);
  });
}

tw_status tw_dropout_mask(const tw_dropout* dropout, const int64_t first[3], const int64_t count[3],
                          uint8_t* keep) {
  return guarded([&] {
    require(dropout, "dropout");
    require(first, "first");
    require(count, "count");
    require(keep, "keep");
    const auto mask = dropout_mask(*dropout_of(dropout), {.head = first[0],
                                                          .heads = count[0],
                                                          .query = first[1],
                                                          .queries = count[1],
                                                          .key = first[2],
                                                          .keys = count[2]});
    std::copy(mask.begin(), mask.end(), keep);
  });
}

tw_status tw_workspace_size(const tw_kernel* kernel, int64_t batch, int64_t heads, int64_t seqlen_q,
                            int64_t seqlen_kv, size_t* bytes) {
  return guarded([&] {
    require(bytes, "bytes");
    *bytes = 0;
    require(kernel, "kernel");
    *bytes = static_cast<size_t>(kernel->kernel->workspace_size({batch, heads, seqlen_q, seqlen_kv}));
  });
}

tw_status tw_supports(const char* spec, const char* file, const char* target, int* supported) {
  return guarded([&] {
    require(supported, "supported");
    *supported = 0;
    require(spec, "spec");
    require(target, "target");
    const auto reasons = unsupported_because(parse_spec(spec, file ? file : "spec"), target_by_name(target));
    if (reasons.empty()) {
      *supported = 1;
      return;
    }
    std::string text;
    for (const auto& reason : reasons) text += (text.empty() ? "" : "\n") + reason;
    fail(TW_ERROR_SPEC, text.c_str());
  });
}

}  // extern "C"
