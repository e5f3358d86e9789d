#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "codegen/error.h"
#include "runtime/device.h"
#include "runtime/tile_counters.h"
#include "simulator/host_kernel.h"
#include "simulator/simulator.h"
#include "simulator/tensor_map.h"

namespace tilewright {
namespace {

constexpr std::align_val_t buffer_alignment{256};

// Multiprocessors, as far as blocks of the sm90 family that share tiles are concerned: few, so that small
// problems too give every block several tiles.
constexpr int multiprocessors = 3;

TensorMap simulated_tensor_map(const TensorMapRequest& request) {
  simulator::SimulatedTensorMap map{.base = request.data, .element_bytes = size_of(request.type)};
  for (int i = 0; i < 4; ++i) map.extents[i] = static_cast<int64_t>(request.sizes[i]);
  for (int i = 0; i < 3; ++i) map.strides[i] = static_cast<int64_t>(request.strides[i]);
  map.box[0] = TensorMapRequest::box_columns;
  const bool folded = request.box_heads > 1;
  map.box[1] = static_cast<int32_t>(folded ? request.box_heads : request.box_rows);
  map.box[2] = static_cast<int32_t>(folded ? request.box_rows : 1);
  map.box[3] = 1;
  TensorMap encoded;
  simulator::encode(map, &encoded);
  return encoded;
}

class SimulatorExecutable final : public Executable {
 public:
  SimulatorExecutable(AttentionSpec spec, const Schedule& schedule, const Source& source, HostKernel kernel,
                      const SimulatorOptions& options)
      : spec_(std::move(spec)),
        family_(schedule.family),
        cluster_(schedule.cluster),
        kernel_(std::move(kernel)),
        options_(options),
        source_(source),
        takes_expressions_(kernel_expressions(spec_).any()) {
    report_.compiler = kernel_.compiler;
    report_.command = kernel_.command;
    report_.milliseconds = kernel_.milliseconds;
    report_.shared_memory = source.shared_memory;
  }

  void launch(Stream, const PreparedLaunch& launch, const ForwardArguments& arguments,
              const LaunchOptions& options) const override {
    const int blocks = blocks_to_share_tiles(multiprocessors, options, 1);  // or clusters
    fill_tables(launch, arguments);
    simulator::Launch run = main_launch(launch.plan.tiles, &launch.parameters);
    HopperForwardParameters hopper;
    int counters[2] = {0, 0};
    if (family_ == Family::sm90) {
      // The latest seed also stands for launches that get no counters: a block for each tile.
      const bool share = options_.seed != 1 && tiles_to_share(launch.plan.tiles, blocks);
      hopper = hopper_parameters(launch, share && cluster_ == 1 ? counters : nullptr, simulated_tensor_map);
      run.parameters = &hopper;
      if (share) share_tiles(run, counters, blocks);
    }
    run.grid *= cluster_;
    run.cluster = cluster_;
    const void* const both[] = {run.parameters, launch.expressions.bytes};
    if (takes_expressions_) run.parameters = both;
    add_buffer(run, "q", arguments.q, false);
    add_buffer(run, "k", arguments.k, false);
    add_buffer(run, "v", arguments.v, false);
    add_buffer(run, "out", arguments.out, true);
    if (arguments.lse) add_buffer(run, "lse", *arguments.lse, true);
    add_sequences(run, arguments);
    for (const auto& [name, view] :
         {std::pair("sinks", &arguments.sinks), std::pair("block_rows", &arguments.block_rows),
          std::pair("block_columns", &arguments.block_columns)})
      if (*view) add_buffer(run, name, **view, false);
    add_tensors(run, arguments.tensors);
    add_tables(run, launch, arguments);
    run_or_throw(run);
    check_counters(counters);
  }

  // Each kernel sees of the workspace what it may read and what it writes.
  void launch(Stream, const PreparedBackward& launch, const BackwardArguments& arguments) const override {
    const BackwardWorkspace& parts = launch.plan.workspace;
    char* const workspace = static_cast<char*>(arguments.workspace);
    const auto add_part = [&](simulator::Launch& run, const char* name, int64_t begin, int64_t end) {
      run.buffers.push_back(
          {.data = workspace + begin, .bytes = static_cast<size_t>(end - begin), .name = name});
      return &run.buffers.back();
    };
    const auto add_output = [&](simulator::Launch& run, const char* name, int64_t begin, int64_t end) {
      simulator::Buffer* buffer = add_part(run, name, begin, end);
      buffer->writable = true;
      buffer->initialised = false;
    };
    const void* parameters = &launch.parameters;

    simulator::Launch before =
        launch_of(*source_.before, kernel_.before, launch.plan.query_blocks, parameters);
    add_buffer(before, "out", arguments.out, false);
    add_buffer(before, "lse", arguments.lse, false);
    add_buffer(before, "d_out", arguments.d_out, false);
    if (arguments.d_lse) add_buffer(before, "d_lse", *arguments.d_lse, false);
    add_output(before, "dq_sums", parts.dq_sums, parts.lse_log2);
    add_output(before, "lse_log2", parts.lse_log2, parts.row_terms);
    add_output(before, "row_terms", parts.row_terms, parts.turns);
    add_output(before, "turns", parts.turns, parts.sink_terms);
    add_output(before, "sink_terms", parts.sink_terms, parts.row_ranges);
    add_output(before, "row_ranges", parts.row_ranges, parts.bytes);
    add_tensors(before, arguments.tensors);
    const void* both[] = {parameters, launch.expressions.bytes};
    if (takes_expressions_) before.parameters = both;
    if (arguments.sinks) add_buffer(before, "sinks", *arguments.sinks, false);
    add_sequences(before, arguments);
    run_or_throw(before);

    simulator::Launch run = main_launch(launch.plan.key_blocks, parameters);
    HopperBackwardParameters hopper;
    int counters[2] = {0, 0};
    if (family_ == Family::sm90 && launch.plan.key_blocks > 0) {
      const bool share = options_.seed != 1 && tiles_to_share(launch.plan.key_blocks, multiprocessors);
      hopper = hopper_parameters(launch, share ? counters : nullptr, simulated_tensor_map);
      run.parameters = &hopper;
      if (share) share_tiles(run, counters, multiprocessors);
    }
    add_buffer(run, "q", arguments.q, false);
    add_buffer(run, "k", arguments.k, false);
    add_buffer(run, "v", arguments.v, false);
    add_buffer(run, "lse", arguments.lse, false);
    both[0] = run.parameters;
    if (takes_expressions_) run.parameters = both;
    add_tensors(run, arguments.tensors);
    if (arguments.d_bias) {
      const MemorySpan span = memory_span(*arguments.d_bias);
      run.buffers.push_back({.data = span.begin, .bytes = span.bytes, .name = "d_bias", .sums = true});
    }
    add_part(run, "row_ranges", parts.row_ranges, parts.bytes);
    add_buffer(run, "d_out", arguments.d_out, false);
    add_buffer(run, "dk", arguments.dk, true);
    add_buffer(run, "dv", arguments.dv, true);
    add_part(run, "dq_sums", parts.dq_sums, parts.lse_log2)->sums = true;
    add_sequences(run, arguments);
    add_part(run, "lse_log2", parts.lse_log2, parts.row_terms);
    add_part(run, "row_terms", parts.row_terms, parts.turns);
    if (parts.sink_terms > parts.turns) {
      simulator::Buffer* turns = add_part(run, "turns", parts.turns, parts.sink_terms);
      turns->writable = turns->counters = true;
    }
    run_or_throw(run);
    check_counters(counters);

    simulator::Launch after = launch_of(*source_.after, kernel_.after, launch.plan.finish_blocks, parameters);
    add_part(after, "dq_sums", parts.dq_sums, parts.lse_log2);
    add_part(after, "sink_terms", parts.sink_terms, parts.row_ranges);
    if (arguments.d_sinks) add_buffer(after, "d_sinks", *arguments.d_sinks, true);
    add_buffer(after, "dq", arguments.dq, true);
    add_sequences(after, arguments);
    run_or_throw(after);
  }

  const CompileReport& report() const override { return report_; }

 private:
  void fill_tables(const PreparedLaunch& launch, const ForwardArguments& arguments) const {
    if (launch.tables.blocks() == 0) return;
    simulator::Launch run =
        launch_of(*source_.before, kernel_.before, launch.tables.blocks(), &launch.parameters);
    const void* const both[] = {run.parameters, launch.expressions.bytes};
    run.parameters = both;
    add_tensors(run, arguments.tensors);
    add_tables(run, launch, arguments);
    run.buffers.back().writable = true;
    run.buffers.back().initialised = false;
    run_or_throw(run);
  }

  static void add_tables(simulator::Launch& run, const PreparedLaunch& launch,
                         const ForwardArguments& arguments) {
    if (launch.tables.entries == 0) return;
    run.buffers.push_back(
        {.data = arguments.workspace, .bytes = static_cast<size_t>(launch.tables.bytes()), .name = "tables"});
  }

  simulator::Launch launch_of(const EntryPoint& entry, void (*thunk)(const void*), int64_t grid,
                              const void* parameters) const {
    simulator::Launch run;
    run.kernel_name = entry.name;
    run.thunk = thunk;
    run.bind = kernel_.bind;
    run.parameters = parameters;
    run.grid = grid;
    run.threads = entry.threads;
    run.shared_memory = entry.shared_memory;
    run.seed = options_.seed;
    run.check_races = options_.check_races;
    return run;
  }
  simulator::Launch main_launch(int64_t grid, const void* parameters) const {
    return launch_of({source_.kernel_name, source_.threads, source_.shared_memory}, kernel_.thunk, grid,
                     parameters);
  }

  static void share_tiles(simulator::Launch& run, int (&counters)[2], int blocks) {
    run.grid = blocks;
    run.buffers.push_back(
        {.data = counters, .bytes = sizeof counters, .name = "counters", .writable = true, .counters = true});
  }

  static void check_counters(const int (&counters)[2]) {
    if (counters[0] == 0 && counters[1] == 0) return;
    throw Error(ErrorKind::device, "the simulator found a fault: the kernel left its counters at " +
                                       std::to_string(counters[0]) + " and " + std::to_string(counters[1]) +
                                       ", expected 0 and 0");
  }

  void run_or_throw(const simulator::Launch& run) const {
    const simulator::Report report = simulator::run(run);
    if (!report.ok)
      throw Error(ErrorKind::device,
                  "the simulator found a fault: " + simulator::with_source_line(report, source_.text));
  }

  /// What expressions look up.
  static void add_tensors(simulator::Launch& run, const std::map<std::string, TensorView>& tensors) {
    for (const auto& [name, view] : tensors) {
      const MemorySpan span = memory_span(view);
      run.buffers.push_back({.data = span.begin, .bytes = span.bytes, .name = name});
    }
  }

  /// Layout packed: the arrays that say where sequences begin.
  template <typename Arguments>
  void add_sequences(simulator::Launch& run, const Arguments& arguments) const {
    for (const auto& [name, view] :
         {std::pair("cu_seqlens_q", &arguments.cu_seqlens_q),
          std::pair("cu_seqlens_kv", &arguments.cu_seqlens_kv), std::pair("seqused_q", &arguments.seqused_q),
          std::pair("seqused_kv", &arguments.seqused_kv)})
      if (*view) add_buffer(run, name, **view, false);
  }

  /// Exactly the bytes of the view, so that one element too far is a fault.
  void add_buffer(simulator::Launch& run, const char* name, const TensorView& view, bool output) const {
    int64_t strides[4];
    effective_strides(spec_, view, strides);
    run.buffers.push_back({.data = view.data,
                           .bytes = static_cast<size_t>(span_bytes(view, strides)),
                           .name = name,
                           .writable = output,
                           .initialised = !output});
  }

  AttentionSpec spec_;
  Family family_;
  int cluster_;
  HostKernel kernel_;
  SimulatorOptions options_;
  Source source_;
  CompileReport report_;
  bool takes_expressions_;
};

class SimulatorDevice final : public Device {
 public:
  SimulatorDevice(const SimulatorOptions& options, const Target& target)
      : options_(options), target_(target) {}

  bool is_simulator() const override { return true; }
  const Target& target() const override { return target_; }
  std::string name() const override { return "simulator of " + std::string(target_.name); }
  Backend backend() const override { return Backend::simulator; }

  // Host code is not kept on disk: it is made in milliseconds, and lives in this process alone.
  std::unique_ptr<Executable> load(const AttentionSpec& spec, const Schedule& schedule, const Source& source,
                                   KernelCache&, CacheResult& from) override {
    from = CacheResult::compiled;
    return std::make_unique<SimulatorExecutable>(spec, schedule, source,
                                                 build_host_kernel(source, options_.compiler), options_);
  }

  void* allocate(size_t bytes) override {
    return ::operator new(std::max<size_t>(bytes, 1), buffer_alignment);
  }
  void free(void* data) noexcept override { ::operator delete(data, buffer_alignment); }
  void upload(void* destination, const void* host, size_t bytes) override {
    std::memcpy(destination, host, bytes);
  }
  void download(void* host, const void* source, size_t bytes) override { std::memcpy(host, source, bytes); }
  void fill(void* destination, unsigned char value, size_t bytes) override {
    std::memset(destination, value, bytes);
  }
  void synchronize() override {}

 private:
  SimulatorOptions options_;
  const Target& target_;
};

}  // namespace

std::unique_ptr<Device> make_simulator_device(const SimulatorOptions& options, const std::string& target) {
  return std::make_unique<SimulatorDevice>(options, target_by_name(target));
}

}  // namespace tilewright
