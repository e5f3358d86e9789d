#include "cli/run_backward.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>

#include "cli/command.h"
#include "cli/failure.h"
#include "cli/output.h"
#include "cli/tensors.h"
#include "codegen/kernel_expressions.h"
#include "runtime/reference_backward.h"

namespace tilewright::cli {
namespace {

struct Outcome {
  std::shared_ptr<const Kernel> kernel;
  CacheResult from = CacheResult::compiled;
  int64_t workspace_bytes = 0;
  double run_milliseconds = 0;
  bool guards_intact = true;
  std::optional<BackwardVerdict> verdict;

  bool ok() const { return guards_intact && (!verdict || verdict->ok); }
};

/// The tensors of both passes, on the host.
struct Tensors {
  HostTensor q, k, v, out, lse, d_out, dq, dk, dv, sinks, d_sinks;

  Tensors(const AttentionSpec& spec, const LaunchShape& shape)
      : q(make(spec, shape.batch, shape.seqlen_q, shape.heads, spec.head_dim.qk)),
        k(make(spec, shape.batch, shape.seqlen_kv, shape.heads / spec.gqa_ratio, spec.head_dim.qk)),
        v(make(spec, shape.batch, shape.seqlen_kv, shape.heads / spec.gqa_ratio, spec.head_dim.v)),
        out(make(spec, shape.batch, shape.seqlen_q, shape.heads, spec.head_dim.v)),
        lse(DataType::fp32, {shape.batch, shape.heads, shape.seqlen_q}, spec.layout),
        d_out(out),
        dq(q),
        dk(k),
        dv(v),
        sinks(DataType::fp32, {shape.heads}, spec.layout),
        d_sinks(sinks) {}

  static HostTensor make(const AttentionSpec& spec, int64_t batch, int64_t rows, int64_t heads,
                         int64_t columns) {
    return HostTensor(spec.dtype.q, {batch, rows, heads, columns}, spec.layout);
  }
};

Outcome run(const BackwardRun& options, Runtime& runtime) {
  const AttentionSpec& spec = options.spec;
  Outcome outcome;
  outcome.kernel = runtime.kernel(spec, &outcome.from);
  AttentionSpec forward = forward_spec(spec);
  forward.blocks = {};  // those of the spec are the backward pass's
  forward.deterministic = false;
  const auto forward_kernel = runtime.kernel(forward);

  Tensors tensors(spec, options.shape);
  tensors.q.fill_normal(4 * options.seed);
  tensors.k.fill_normal(4 * options.seed + 1);
  tensors.v.fill_normal(4 * options.seed + 2);
  tensors.d_out.fill_normal(4 * options.seed + 3);
  tensors.sinks.fill_normal(4 * options.seed + 4);
  GuardedTensor q(runtime, tensors.q), k(runtime, tensors.k), v(runtime, tensors.v),
      out(runtime, tensors.out), lse(runtime, tensors.lse), d_out(runtime, tensors.d_out),
      dq(runtime, tensors.dq), dk(runtime, tensors.dk), dv(runtime, tensors.dv);
  GuardedTensor sinks(runtime, tensors.sinks), d_sinks(runtime, tensors.d_sinks);
  std::optional<double> scale = options.softmax_scale;
  if (spec.softmax_scale_at_launch && !scale) scale = 1 / std::sqrt(spec.head_dim.qk);

  outcome.workspace_bytes = outcome.kernel->workspace_size(options.shape);
  DeviceBuffer workspace(runtime, static_cast<size_t>(outcome.workspace_bytes));
  workspace.fill(0xff);
  const auto start = std::chrono::steady_clock::now();
  ForwardArguments forward_arguments{.q = q.view(),
                                     .k = k.view(),
                                     .v = v.view(),
                                     .out = out.view(),
                                     .lse = lse.view(),
                                     .softmax_scale = scale};
  BackwardArguments arguments{.q = q.view(),
                              .k = k.view(),
                              .v = v.view(),
                              .out = out.view(),
                              .lse = lse.view(),
                              .d_out = d_out.view(),
                              .dq = dq.view(),
                              .dk = dk.view(),
                              .dv = dv.view(),
                              .softmax_scale = scale,
                              .workspace = workspace.data(),
                              .workspace_bytes = workspace.bytes()};
  BackwardArguments host{.q = tensors.q.view(),
                         .k = tensors.k.view(),
                         .v = tensors.v.view(),
                         .out = tensors.out.view(),
                         .lse = tensors.lse.view(),
                         .d_out = tensors.d_out.view(),
                         .dq = tensors.dq.view(),
                         .dk = tensors.dk.view(),
                         .dv = tensors.dv.view(),
                         .softmax_scale = scale};
  if (spec.sinks) {
    forward_arguments.sinks = arguments.sinks = sinks.view(), host.sinks = tensors.sinks.view();
    arguments.d_sinks = d_sinks.view(), host.d_sinks = tensors.d_sinks.view();
  }
  ExpressionInputs expressions(runtime, spec, options.shape, options.expressions, 4 * options.seed + 5);
  ForwardArguments host_forward;
  expressions.give(forward_arguments, host_forward);
  std::optional<HostTensor> host_d_bias;
  std::optional<GuardedTensor> d_bias;
  if (spec.bias_gradient) {
    host_d_bias.emplace(DataType::fp32, host_forward.tensors.at(bias_tensor).shape, Layout::bshd);
    std::vector<double> zeros(host_d_bias->bytes().size() / sizeof(float));
    host_d_bias->fill(zeros);
    d_bias.emplace(runtime, *host_d_bias);
    arguments.d_bias = d_bias->view(), host.d_bias = host_d_bias->view();
  }
  arguments.scalars = host.scalars = forward_arguments.scalars;
  arguments.tensors = forward_arguments.tensors, host.tensors = host_forward.tensors;
  forward_arguments.dropout = arguments.dropout = host.dropout = options.dropout;
  DeviceBuffer forward_workspace(runtime, static_cast<size_t>(forward_kernel->workspace_size(options.shape)));
  forward_workspace.fill(0xff);
  forward_arguments.workspace = forward_workspace.data();
  forward_arguments.workspace_bytes = forward_workspace.bytes();
  forward_kernel->launch(nullptr, forward_arguments);
  outcome.kernel->launch_backward(nullptr, arguments);
  runtime.synchronize();
  outcome.run_milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  for (GuardedTensor* tensor : {&out, &lse, &dq, &dk, &dv, &d_sinks})
    outcome.guards_intact = tensor->download() && outcome.guards_intact;
  if (d_bias) outcome.guards_intact = d_bias->download() && outcome.guards_intact;
  if (options.check) outcome.verdict = compare_backward(spec, host);
  return outcome;
}

struct NamedError {
  const char *key, *title;
  GradientError error;
};

std::vector<NamedError> errors_of(const BackwardVerdict& verdict, const AttentionSpec& spec) {
  std::vector<NamedError> errors = {
      {"dq", "dQ error", verdict.dq}, {"dk", "dK error", verdict.dk}, {"dv", "dV error", verdict.dv}};
  if (spec.sinks) errors.push_back({"d_sinks", "sinks error", verdict.d_sinks});
  if (spec.bias_gradient) errors.push_back({"d_bias", "bias error", verdict.d_bias});
  return errors;
}

void print_text(const BackwardRun& options, const Outcome& outcome, const Runtime& runtime) {
  const KernelVariant& variant = outcome.kernel->variant_for(options.shape);
  print_field("spec", title_of(options.spec, options.file));
  print_field("device", runtime.device_name());
  print_field("target", fmt::format("{}, {}", runtime.target().name, runtime.target().generation));
  print_field("schedule", describe(variant.schedule));
  std::string kernels;
  for (const std::string& name : kernel_names(variant.source))
    kernels += (kernels.empty() ? "" : ", ") + name;
  print_field("kernels", kernels);
  print_field("compile", fmt::format("{} by {} ({})", milliseconds_text(variant.report.milliseconds),
                                     variant.report.compiler, name_of(outcome.from)));
  for (const std::string& note : variant.report.notes) print_field("note", note);
  print_field("shape", shape_sentence(options.spec, options.shape));
  print_field("workspace", bytes_text(static_cast<double>(outcome.workspace_bytes)));
  print_field("run", milliseconds_text(outcome.run_milliseconds) + ", the first launch of both passes");
  if (!outcome.guards_intact) print_field("guards", "overwritten: a kernel wrote outside its outputs");
  if (outcome.verdict) {
    const BackwardVerdict& verdict = *outcome.verdict;
    for (const auto& [key, title, e] : errors_of(verdict, options.spec))
      print_field(title,
                  fmt::format("{:.3g} at most, {:.3g} allowed; root mean square {:.3g}, {:.3g} allowed; "
                              "against fp64",
                              e.error, e.allowed, e.rms_error, e.rms_allowed));
    if (!verdict.ok) print_field("worst", verdict.message);
  }
  fmt::print("{}\n", !outcome.ok() ? "WRONG" : outcome.verdict ? "ok" : "not checked");
}

Json as_json(const BackwardRun& options, const Outcome& outcome, const Runtime& runtime) {
  const KernelVariant& variant = outcome.kernel->variant_for(options.shape);
  Json json = {{"spec", title_of(options.spec, options.file)},
               {"device", runtime.device_name()},
               {"target", runtime.target().name},
               {"schedule", describe(variant.schedule)},
               {"kernels", kernel_names(variant.source)},
               {"compiler", variant.report.compiler},
               {"compile_milliseconds", variant.report.milliseconds},
               {"from", name_of(outcome.from)},
               {"registers", variant.report.registers},
               {"spill_bytes", variant.report.spill_bytes},
               {"shared_memory", variant.source.shared_memory},
               {"notes", variant.report.notes},
               {"shape",
                {{"batch", options.shape.batch},
                 {"heads", options.shape.heads},
                 {"seqlen_q", options.shape.seqlen_q},
                 {"seqlen_kv", options.shape.seqlen_kv}}},
               {"workspace_bytes", outcome.workspace_bytes},
               {"run_milliseconds", outcome.run_milliseconds},
               {"guards_intact", outcome.guards_intact}};
  if (outcome.verdict) {
    const auto gradient = [](const GradientError& e) {
      return Json{{"maximum", e.error},
                  {"maximum_allowed", e.allowed},
                  {"rms", e.rms_error},
                  {"rms_allowed", e.rms_allowed}};
    };
    json["error"] = {{"worst", outcome.verdict->message}};
    for (const auto& [key, title, error] : errors_of(*outcome.verdict, options.spec))
      json["error"][key] = gradient(error);
  }
  json["checked"] = outcome.verdict.has_value();
  json["ok"] = outcome.ok();
  return json;
}

}  // namespace

int run_backward(const BackwardRun& options, Runtime& runtime) {
  const Outcome outcome = run(options, runtime);
  if (options.json)
    print_json(as_json(options, outcome, runtime));
  else
    print_text(options, outcome, runtime);
  return outcome.ok() ? exit_ok : exit_wrong_result;
}

}  // namespace tilewright::cli
