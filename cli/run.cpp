// tilewright run: makes a spec's kernel, launches it once, and checks the result.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "cli/choices.h"
#include "cli/command.h"
#include "cli/dropout_options.h"
#include "cli/expression_inputs.h"
#include "cli/failure.h"
#include "cli/integer_array.h"
#include "cli/npy.h"
#include "cli/output.h"
#include "cli/run_backward.h"
#include "cli/tensors.h"
#include "codegen/io_model.h"
#include "runtime/reference.h"
#include "tilewright/tilewright.hpp"

namespace tilewright::cli {
namespace {

struct Options {
  std::string file;
  ShapeOptions shape;
  std::string device = "automatic";
  std::string target;
  std::string simulator_compiler = "automatic";
  uint64_t simulator_seed = 0;
  uint64_t seed = 1;
  std::optional<double> softmax_scale;
  DropoutOptions dropout;
  ExpressionOptions expressions;
  std::vector<int64_t> lengths_q, lengths_kv;  // layout packed: of each sequence
  std::string q, k, v, out, lse, expect;
  bool check = true;
  bool no_cache = false;
  bool json = false;
};

struct Inputs {
  LaunchShape shape;
  HostTensor q, k, v;
};

struct Outcome {
  AttentionSpec spec;
  LaunchShape shape;
  std::string device;
  std::shared_ptr<const Kernel> kernel;
  CacheResult from = CacheResult::compiled;
  double run_milliseconds = 0;
  bool guards_intact = true;
  std::optional<Verdict> verdict;
  std::optional<double> expected_error;  // against --expect

  /// What a launch of this shape runs.
  const KernelVariant& variant() const { return kernel->variant_for(shape); }
  bool ok() const {
    bool as_expected = !expected_error || *expected_error <= verdict->allowed;  // false for NaN
    return guards_intact && (!verdict || verdict->ok) && as_expected;
  }
};

HostTensor tensor_from(const std::string& file, DataType dtype, Layout layout) {
  NpyArray array = read_npy(file);
  const bool packed = layout == Layout::packed;
  if (array.shape.size() != (packed ? 3 : 4)) {
    throw Error(ErrorKind::usage,
                fmt::format("{} has shape {}; expected [{}, heads, head_dim]", file, shape_text(array.shape),
                            packed ? "rows of all sequences" : "batch, sequence"));
  }
  HostTensor tensor(dtype, array.shape, layout);
  tensor.fill(array.values);
  return tensor;
}

int64_t sum_of(const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (int64_t length : lengths) {
    if (length < 0 || sum > INT32_MAX - length) {
      throw Error(ErrorKind::usage, fmt::format("the length {} is not valid; expected 0 or more, and all of "
                                                "them together below 2^31",
                                                length));
    }
    sum += length;
  }
  return sum;
}

/// At least 1, as a tensor along q or kv has elements.
int64_t longest(const std::vector<int64_t>& lengths) {
  int64_t longest = 1;
  for (int64_t length : lengths) longest = std::max(longest, length);
  return longest;
}

/// Makes the lengths of layout packed complete, and the shape that stands for them: their number and means.
void complete_lengths(Options& options, const AttentionSpec& spec) {
  auto &q = options.lengths_q, &kv = options.lengths_kv;
  if (spec.layout != Layout::packed) {
    if (!q.empty() || !kv.empty())
      throw Error(ErrorKind::usage, "--lengths-q and --lengths-kv are for specs with `layout: packed`");
    return;
  }
  if (q.empty() && !kv.empty()) throw Error(ErrorKind::usage, "--lengths-kv needs --lengths-q");
  if (q.empty()) {
    const LaunchShape shape = options.shape.shape(spec);
    q.assign(static_cast<size_t>(shape.batch), shape.seqlen_q);
    kv.assign(static_cast<size_t>(shape.batch), shape.seqlen_kv);
  }
  if (kv.empty()) kv = q;
  if (q.size() != kv.size()) {
    throw Error(ErrorKind::usage, fmt::format("--lengths-q has {} lengths, --lengths-kv {}; expected as many",
                                              q.size(), kv.size()));
  }
  const auto count = static_cast<int64_t>(q.size());
  const auto mean = [&](int64_t sum) { return count == 0 ? 0 : (sum + count - 1) / count; };
  options.shape.batch = count;
  options.shape.seqlen_q = mean(sum_of(q));
  options.shape.seqlen_kv = mean(sum_of(kv));
}

Inputs inputs_from_files(const Options& options, const AttentionSpec& spec) {
  HostTensor q = tensor_from(options.q, spec.dtype.q, spec.layout);
  HostTensor k = tensor_from(options.k, spec.dtype.kv, spec.layout);
  HostTensor v = tensor_from(options.v, spec.dtype.kv, spec.layout);
  LaunchShape shape{q.shape()[0], q.shape()[2], q.shape()[1], k.shape()[1]};
  if (spec.layout == Layout::packed) {
    shape = options.shape.shape(spec);
    shape.heads = q.shape()[1];
  }
  return {shape, std::move(q), std::move(k), std::move(v)};
}

Inputs random_inputs(const Options& options, const AttentionSpec& spec) {
  LaunchShape shape = options.shape.shape(spec);
  int64_t kv_heads = shape.heads / spec.gqa_ratio;
  const auto tensor = [&](DataType type, const std::vector<int64_t>& lengths, int64_t length, int64_t heads,
                          int64_t columns) {
    if (spec.layout == Layout::packed) {
      return HostTensor(type, {sum_of(lengths), heads, columns}, spec.layout);
    }
    return HostTensor(type, {shape.batch, length, heads, columns}, spec.layout);
  };
  HostTensor q = tensor(spec.dtype.q, options.lengths_q, shape.seqlen_q, shape.heads, spec.head_dim.qk);
  HostTensor k = tensor(spec.dtype.kv, options.lengths_kv, shape.seqlen_kv, kv_heads, spec.head_dim.qk);
  HostTensor v = tensor(spec.dtype.kv, options.lengths_kv, shape.seqlen_kv, kv_heads, spec.head_dim.v);
  q.fill_normal(3 * options.seed);
  k.fill_normal(3 * options.seed + 1);
  v.fill_normal(3 * options.seed + 2);
  return {shape, std::move(q), std::move(k), std::move(v)};
}

RuntimeOptions runtime_options(const Options& options) {
  RuntimeOptions runtime;
  if (options.device == "cuda") runtime.device.kind = DeviceChoice::Kind::cuda;
  if (options.device == "simulator") runtime.device.kind = DeviceChoice::Kind::simulator;
  if (options.simulator_compiler == "llvm") runtime.simulator.compiler = SimulatorCompiler::llvm;
  if (options.simulator_compiler == "system") runtime.simulator.compiler = SimulatorCompiler::system;
  runtime.simulator.seed = options.simulator_seed;
  if (!options.target.empty()) runtime.simulated_target = std::string(target_by_name(options.target).name);
  runtime.disk_cache = !options.no_cache;
  return runtime;
}

/// Long waits on the CPU are announced: a multiply-add takes the simulator about 3.5 ns on a core, the
/// reference 1.2.
void announce_waits(const Options& options, const IoModel& model, bool simulator) {
  constexpr double worth_saying = 10;  // seconds
  double cores = std::max(1u, std::thread::hardware_concurrency());
  double simulating = simulator ? model.work.done / 2 * 3.5e-9 / cores : 0;
  double checking = options.check ? model.work.needed / 2 * 1.2e-9 : 0;
  if (simulating > worth_saying) {
    remark(fmt::format("the simulator will take about {:.0f} s; smaller shapes take less", simulating));
  }
  if (checking > worth_saying) {
    remark(
        fmt::format("the check against fp64 will take about {:.0f} s; --no-check leaves it out", checking));
  }
}

void require_lse(const Options& options, const AttentionSpec& spec) {
  if (!options.lse.empty() && !spec.lse) {
    throw Error(ErrorKind::usage,
                options.file + " does not ask for LSE; add `lse: true` to it, or leave --lse out");
  }
}

/// The largest difference; NaN if anything is NaN.
double largest_difference(const std::vector<double>& got, const NpyArray& expected) {
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    double difference = std::abs(got[i] - expected.values[i]);
    if (!(difference <= largest)) largest = difference;
    if (std::isnan(largest)) break;
  }
  return largest;
}

NpyArray read_expected(const std::string& file, const HostTensor& out) {
  NpyArray expected = read_npy(file);
  if (expected.shape != out.shape()) {
    throw Error(ErrorKind::usage, fmt::format("{} has shape {}; the output has {}", file,
                                              shape_text(expected.shape), shape_text(out.shape())));
  }
  return expected;
}

void check_target(const Options& options, const Runtime& runtime) {
  if (!runtime.is_simulator() && !options.target.empty())
    throw Error(ErrorKind::usage, "--target is what the simulator stands for; a GPU is what it is");
}

Outcome run(Options options) {
  Outcome outcome;
  outcome.spec = load_spec(options.file);
  const AttentionSpec& spec = outcome.spec;
  complete_lengths(options, spec);
  require_lse(options, spec);
  Runtime runtime(runtime_options(options));
  check_target(options, runtime);
  outcome.device = runtime.device_name();
  outcome.kernel = runtime.kernel(spec, &outcome.from);

  Inputs inputs = options.q.empty() ? random_inputs(options, spec) : inputs_from_files(options, spec);
  const LaunchShape& shape = outcome.shape = inputs.shape;
  std::vector<int64_t> out_shape = inputs.q.shape(), lse_shape = {shape.batch, shape.heads, shape.seqlen_q};
  out_shape.back() = spec.head_dim.v;
  if (spec.layout == Layout::packed) lse_shape = {shape.heads, out_shape[0]};
  HostTensor out(spec.dtype.out, out_shape, spec.layout);
  HostTensor lse(DataType::fp32, lse_shape, spec.layout);
  std::optional<NpyArray> expected;
  if (!options.expect.empty()) expected = read_expected(options.expect, out);

  GuardedTensor device_q(runtime, inputs.q), device_k(runtime, inputs.k), device_v(runtime, inputs.v);
  GuardedTensor device_out(runtime, out), device_lse(runtime, lse);
  ForwardArguments arguments{device_q.view(), device_k.view(), device_v.view(), device_out.view()};
  ForwardArguments host{inputs.q.view(), inputs.k.view(), inputs.v.view(), out.view()};
  if (spec.lse) {
    arguments.lse = device_lse.view();
    host.lse = lse.view();
  }
  std::optional<IntegerArray> queries, keys;
  if (spec.layout == Layout::packed) {
    queries.emplace(sequence_starts(runtime, options.lengths_q));
    keys.emplace(sequence_starts(runtime, options.lengths_kv));
    arguments.cu_seqlens_q = queries->on_device(), host.cu_seqlens_q = queries->on_host();
    arguments.cu_seqlens_kv = keys->on_device(), host.cu_seqlens_kv = keys->on_host();
  }
  std::optional<DrawnBlocks> blocks;
  if (spec.mask.blocks) {
    blocks.emplace(runtime, *spec.mask.blocks, shape, options.seed);
    arguments.block_rows = blocks->rows.on_device(), host.block_rows = blocks->rows.on_host();
    arguments.block_columns = blocks->columns.on_device(), host.block_columns = blocks->columns.on_host();
  }
  HostTensor sinks(DataType::fp32, {shape.heads}, spec.layout);
  sinks.fill_normal(3 * options.seed + 3);
  GuardedTensor device_sinks(runtime, sinks);
  if (spec.sinks) {
    arguments.sinks = device_sinks.view();
    host.sinks = sinks.view();
  }
  LaunchShape extents = shape;
  if (spec.layout == Layout::packed) {
    extents.seqlen_q = longest(options.lengths_q);
    extents.seqlen_kv = longest(options.lengths_kv);
  }
  ExpressionInputs expressions(runtime, spec, extents, options.expressions, 3 * options.seed + 4);
  expressions.give(arguments, host);
  arguments.dropout = host.dropout = options.dropout.of(spec);
  if (spec.softmax_scale_at_launch) {
    arguments.softmax_scale = host.softmax_scale =
        options.softmax_scale.value_or(1 / std::sqrt(spec.head_dim.qk));
  } else {
    arguments.softmax_scale = host.softmax_scale =
        options.softmax_scale;  // refused by the launch, with the reason
  }

  DeviceBuffer workspace(runtime, static_cast<size_t>(outcome.kernel->workspace_size(shape)));
  workspace.fill(0xff);
  arguments.workspace = workspace.data();
  arguments.workspace_bytes = workspace.bytes();

  announce_waits(options, model_io(spec, outcome.variant().schedule, shape), runtime.is_simulator());
  auto start = std::chrono::steady_clock::now();
  outcome.kernel->launch(nullptr, arguments);
  runtime.synchronize();
  outcome.run_milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();

  outcome.guards_intact = device_out.download();
  if (spec.lse) outcome.guards_intact = device_lse.download() && outcome.guards_intact;
  if (options.check) outcome.verdict = compare_forward(spec, host);
  if (expected) outcome.expected_error = largest_difference(out.values(), *expected);
  if (!options.out.empty()) write_npy(options.out, out.shape(), out.values());
  if (!options.lse.empty()) write_npy(options.lse, lse.shape(), lse.values());
  return outcome;
}

int both_passes(const Options& options, const AttentionSpec& spec) {
  for (const auto& [name, file] : {std::pair("--q, --k and --v", &options.q),
                                   {"--out", &options.out},
                                   {"--lse", &options.lse},
                                   {"--expect", &options.expect}})
    if (!file->empty())
      throw Error(ErrorKind::usage,
                  fmt::format("{}: not for `pass: backward`, whose inputs are drawn", name));
  if (spec.layout == Layout::packed)
    throw Error(ErrorKind::usage,
                "run does not draw sequences for `pass: backward` with `layout: packed`; launch it from C++, "
                "C or Python");
  Runtime runtime(runtime_options(options));
  check_target(options, runtime);
  return run_backward({.spec = spec,
                       .file = options.file,
                       .shape = options.shape.shape(spec),
                       .seed = options.seed,
                       .softmax_scale = options.softmax_scale,
                       .expressions = options.expressions,
                       .dropout = options.dropout.of(spec),
                       .check = options.check,
                       .json = options.json},
                      runtime);
}

std::string kernel_text(const Outcome& outcome) {
  const CompileReport& report = outcome.variant().report;
  std::string text =
      fmt::format("{} threads, {} bytes of shared memory", outcome.variant().schedule.threads(),
                  outcome.variant().source.shared_memory);
  if (report.registers > 0) {
    text += fmt::format(", {} registers, {} bytes spilled", report.registers, report.spill_bytes);
  }
  return text;
}

std::string compile_text(const Outcome& outcome) {
  const CompileReport& report = outcome.variant().report;
  bool hit = outcome.from != CacheResult::compiled;
  return fmt::format("{} by {} ({})", milliseconds_text(report.milliseconds), report.compiler,
                     hit ? fmt::format("cache hit: {}", name_of(outcome.from)) : "cache miss: compiled now");
}

void print_text(const Options& options, const Outcome& outcome) {
  print_field("spec", title_of(outcome.spec, options.file));
  const Target& target = outcome.kernel->target();
  print_field("device", outcome.device);
  print_field("target", fmt::format("{}, {}", target.name, target.generation));
  print_field("schedule", describe(outcome.variant().schedule));
  print_field("kernel", kernel_text(outcome));
  print_field("compile", compile_text(outcome));
  for (const std::string& note : outcome.variant().report.notes) print_field("note", note);
  print_field("shape", (outcome.spec.layout == Layout::packed ? "packed, mean lengths: " : "") +
                           shape_sentence(outcome.spec, outcome.shape));
  print_field("run", milliseconds_text(outcome.run_milliseconds) + ", the first launch");
  if (!outcome.guards_intact) print_field("guards", "overwritten: the kernel wrote outside its output");
  if (outcome.verdict) {
    const Verdict& verdict = *outcome.verdict;
    print_field("error",
                fmt::format("{:.3g} at most, {:.3g} allowed; root mean square {:.3g}, {:.3g} allowed; "
                            "against fp64",
                            verdict.error, verdict.allowed, verdict.rms_error, verdict.rms_allowed));
    if (outcome.spec.lse) {
      print_field("LSE error",
                  fmt::format("{:.3g} at most, {:.3g} allowed", verdict.lse_error, verdict.lse_allowed));
    }
    if (outcome.expected_error) {
      print_field("expected", fmt::format("{:.3g} at most, {:.3g} allowed; against {}",
                                          *outcome.expected_error, verdict.allowed, options.expect));
    }
    if (!verdict.ok) print_field("worst", verdict.message);
  }
  fmt::print("{}\n", !outcome.ok() ? "WRONG" : outcome.verdict ? "ok" : "not checked");
}

Json as_json(const Options& options, const Outcome& outcome) {
  const CompileReport& report = outcome.variant().report;
  Json json = {{"spec", title_of(outcome.spec, options.file)},
               {"device", outcome.device},
               {"target", outcome.kernel->target().name},
               {"schedule", describe(outcome.variant().schedule)},
               {"compiler", report.compiler},
               {"compile_milliseconds", report.milliseconds},
               {"from", name_of(outcome.from)},
               {"registers", report.registers},
               {"spill_bytes", report.spill_bytes},
               {"shared_memory", outcome.variant().source.shared_memory},
               {"notes", report.notes},
               {"shape",
                {{"batch", outcome.shape.batch},
                 {"heads", outcome.shape.heads},
                 {"seqlen_q", outcome.shape.seqlen_q},
                 {"seqlen_kv", outcome.shape.seqlen_kv}}},
               {"run_milliseconds", outcome.run_milliseconds},
               {"guards_intact", outcome.guards_intact}};
  if (outcome.verdict) {
    json["error"] = {{"maximum", outcome.verdict->error}, {"maximum_allowed", outcome.verdict->allowed},
                     {"rms", outcome.verdict->rms_error}, {"rms_allowed", outcome.verdict->rms_allowed},
                     {"lse", outcome.verdict->lse_error}, {"lse_allowed", outcome.verdict->lse_allowed},
                     {"worst", outcome.verdict->message}};
  }
  if (outcome.expected_error) json["expected_error"] = *outcome.expected_error;
  json["checked"] = outcome.verdict.has_value();
  json["ok"] = outcome.ok();
  return json;
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("SPEC", options.file, "Spec file")->required();
  options.shape.add_to(app, 256);
  app.add_option("--device", options.device, "cuda or simulator (default: cuda if there is a GPU)")
      ->check(CLI::IsMember({"automatic", "cuda", "simulator"}));
  app.add_option("--target", options.target, "What the simulator stands for (default sm_80)");
  app.add_option("--simulator-compiler", options.simulator_compiler,
                 "llvm (the plugin), system (g++, for a debugger), or automatic")
      ->check(CLI::IsMember({"automatic", "llvm", "system"}));
  app.add_option("--simulator-seed", options.simulator_seed,
                 "When asynchronous copies land: 0 at once, 1 as late as allowed, others drawn (default 0)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", options.seed, "Of the random inputs (default 1)")->check(CLI::NonNegativeNumber);
  app.add_option("--softmax-scale", options.softmax_scale, "For specs with `softmax_scale: launch`");
  options.dropout.add_to(app);
  options.expressions.add_to(app, "", " (default: made up)");
  app.add_option("--lengths-q", options.lengths_q, "Layout packed: queries of each sequence, as in 12,30,7")
      ->delimiter(',');
  app.add_option("--lengths-kv", options.lengths_kv,
                 "Layout packed: keys of each (default: as many as queries)")
      ->delimiter(',');
  CLI::Option* q = app.add_option("--q", options.q, "Q as .npy, [batch, sequence, heads, head_dim]");
  CLI::Option* k = app.add_option("--k", options.k, "K as .npy");
  CLI::Option* v = app.add_option("--v", options.v, "V as .npy");
  q->needs(k, v);
  k->needs(q, v);
  v->needs(q, k);
  for (const char* name : {"--batch", "--heads", "--seqlen-q", "--seqlen-kv", "--seed"}) {
    q->excludes(app.get_option(name));
  }
  app.add_option("--out", options.out, "Write the output as .npy, float32");
  app.add_option("--lse", options.lse, "Write the LSE as .npy, float32; the spec must say `lse: true`");
  app.add_option("--expect", options.expect, "The fp64 answer as .npy, to compare with as well");
  app.add_flag("--check,!--no-check", options.check, "Compare with an fp64 reference (default)");
  app.add_flag("--no-cache", options.no_cache, "Leave the disk cache alone");
  app.add_flag("--json", options.json, "Print JSON");
  app.footer(
      "Prints `ok`, or `WRONG` with exit code 1. A spec with `pass: backward` runs both passes and checks "
      "dQ, dK\n"
      "and dV. Without --q, --k and --v, inputs are drawn from a normal\n"
      "distribution. Outputs start as NaN between guard bytes.");
}

}  // namespace

Command add_run(CLI::App& root) {
  CLI::App* app = root.add_subcommand("run", "Run a spec's kernel once and check its result");
  auto options = std::make_shared<Options>();
  add_options(*app, *options);
  return {app, [options] {
            if (!options->check && !options->expect.empty()) {
              throw Error(ErrorKind::usage, "--expect checks, --no-check does not; expected one of the two");
            }
            if (const AttentionSpec spec = load_spec(options->file); spec.pass == Pass::backward)
              return both_passes(*options, spec);
            Outcome outcome = run(*options);
            if (options->json) {
              print_json(as_json(*options, outcome));
            } else {
              print_text(*options, outcome);
            }
            return outcome.ok() ? exit_ok : exit_wrong_result;
          }};
}

}  // namespace tilewright::cli
