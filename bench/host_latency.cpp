// What the host spends on a kernel: cold from a spec, from disk, from memory, and on each launch. Needs
// NVRTC, no GPU.
//   build/bench_host_latency --benchmark_out=bench/results/host-latency.json --benchmark_out_format=json
#include <benchmark/benchmark.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/arguments.h"
#include "runtime/bundle_format.h"
#include "runtime/cache.h"
#include "runtime/hash.h"
#include "runtime/include/tilewright/tilewright.hpp"
#include "runtime/replace_file.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

const char* const spec_file = TILEWRIGHT_SOURCE_DIR "/specs/llama-3-8b-prefill.yaml";
const char* const target_name = "sm_90a";

/// Cold compiles of both families: sm80's kernel for sm_80, sm90's for sm_90a.
const char* const cold_targets[] = {"sm_80", "sm_90a"};

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (fs::temp_directory_path() / "tilewright-bench-XXXXXX").string();
    if (!mkdtemp(pattern.data())) std::abort();
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

double seconds_to_compile(const fs::path& cache, const char* target) {
  const auto begin = std::chrono::steady_clock::now();
  compile(load_spec(spec_file), target_by_name(target), {.cache_directory = cache});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// A fresh process and an empty cache: NVRTC is loaded too. Must run before anything loads it here.
void cold_process(benchmark::State& state) {
  state.SetLabel(cold_targets[state.range(0)]);
  for (auto _ : state) {
    TemporaryDirectory cache;
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    const pid_t child = fork();
    if (child == 0) {
      double seconds = -1;
      try {
        seconds = seconds_to_compile(cache.path(), cold_targets[state.range(0)]);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      if (write(ends[1], &seconds, sizeof seconds) != sizeof seconds) std::abort();
      _exit(0);
    }
    double seconds = -1;
    if (read(ends[0], &seconds, sizeof seconds) != sizeof seconds) seconds = -1;
    waitpid(child, nullptr, 0);
    close(ends[0]);
    close(ends[1]);
    if (seconds < 0) return state.SkipWithError("the compile failed");
    state.SetIterationTime(seconds);
  }
}
BENCHMARK(cold_process)
    ->Name("cold/process")
    ->DenseRange(0, 1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(10);

/// NVRTC is loaded already, the cache is empty.
void cold_kernel(benchmark::State& state) {
  state.SetLabel(cold_targets[state.range(0)]);
  for (auto _ : state) {
    TemporaryDirectory cache;
    state.SetIterationTime(seconds_to_compile(cache.path(), cold_targets[state.range(0)]));
  }
}
BENCHMARK(cold_kernel)
    ->Name("cold/kernel")
    ->DenseRange(0, 1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(10);

/// From a spec to machine code that lies on disk: schedule, source, hash, read, verify.
void disk_hit(benchmark::State& state) {
  TemporaryDirectory cache;
  const AttentionSpec spec = load_spec(spec_file);
  const Target& target = target_by_name(target_name);
  const RuntimeOptions options = {.cache_directory = cache.path()};
  compile(spec, target, options);
  for (auto _ : state) {
    CompiledKernel kernel = compile(spec, target, options);
    if (kernel.from != CacheResult::disk) return state.SkipWithError("not from disk");
    benchmark::DoNotOptimize(kernel);
  }
}
BENCHMARK(disk_hit)->Name("hit/disk")->Unit(benchmark::kMicrosecond);

/// The same from a bundle of 100 kernels, opened anew each time. No compiler is looked for.
void bundle_hit(benchmark::State& state) {
  TemporaryDirectory folder;
  const fs::path file = folder.path() / "kernels.twb";
  const AttentionSpec spec = load_spec(spec_file);
  const Target& target = target_by_name(target_name);
  RuntimeOptions options = {.cache_directory = folder.path() / "cache"};
  const CompiledKernel compiled = compile(spec, target, options);
  std::vector<CacheEntry> entries(100);
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string source =
        i == 0 ? kernel_source_key(compiled.source, target, false) : hash_hex(std::to_string(i));
    entries[i].key = {.source = source, .compiler = hash_hex("a compiler")};
    entries[i].target = target_name;
    entries[i].compiled = {.image = compiled.image, .is_ptx = false, .report = compiled.report};
  }
  const std::string bytes = encode_bundle(entries);
  if (!replace_file(file, bytes).empty()) return state.SkipWithError("cannot write a bundle");
  options = {.disk_cache = false, .bundles = {file}, .compiling = false};
  for (auto _ : state) {
    CompiledKernel kernel = compile(spec, target, options);
    if (kernel.from != CacheResult::bundle) return state.SkipWithError("not from the bundle");
    benchmark::DoNotOptimize(kernel);
  }
}
BENCHMARK(bundle_hit)->Name("hit/bundle")->Unit(benchmark::kMicrosecond);

Runtime& simulator() {
  static Runtime runtime({.device = {.kind = DeviceChoice::Kind::simulator}, .disk_cache = false});
  return runtime;
}

void memory_hit(benchmark::State& state) {
  Runtime& runtime = simulator();
  const AttentionSpec spec = load_spec(spec_file);
  runtime.kernel(spec);
  for (auto _ : state) benchmark::DoNotOptimize(runtime.kernel(spec));
}
BENCHMARK(memory_hit)->Name("hit/memory")->Unit(benchmark::kNanosecond);

/// What a launch does before the driver: check the arguments, plan, fill in the parameters.
void launch_arguments(benchmark::State& state) {
  const AttentionSpec spec = load_spec(spec_file);
  const Schedule schedule = choose_schedule(spec, target_by_name(target_name));
  const int64_t heads = 8 * spec.gqa_ratio, sequence = 4096;
  void* const somewhere = reinterpret_cast<void*>(0x10000);
  const TensorView query{somewhere, spec.dtype.q, {1, sequence, heads, spec.head_dim.qk}, {}};
  const TensorView key{somewhere, spec.dtype.kv, {1, sequence, 8, spec.head_dim.qk}, {}};
  ForwardArguments arguments{.q = query, .k = key, .v = key, .out = query};
  if (spec.lse) arguments.lse = TensorView{somewhere, DataType::fp32, {1, heads, sequence}, {}};
  for (auto _ : state) benchmark::DoNotOptimize(prepare_launch(spec, schedule, arguments));
}
BENCHMARK(launch_arguments)->Name("launch/arguments")->Unit(benchmark::kNanosecond);

}  // namespace
}  // namespace tilewright

BENCHMARK_MAIN();
