// The library's front door, on the simulator and without any device.
#include <gtest/gtest.h>

#include <thread>

#include "codegen/error.h"
#include "runtime/device_buffer.h"
#include "runtime/include/tilewright/tilewright.hpp"
#include "runtime/reference.h"
#include "tests/support/runtime_support.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using test::ScopedEnvironment;
using test::TemporaryDirectory;

RuntimeOptions simulator() {
  return {.device = {.kind = DeviceChoice::Kind::simulator}, .disk_cache = false};
}

TEST(Kernel, RunsOnTheSimulator) {
  Runtime runtime(simulator());
  EXPECT_TRUE(runtime.is_simulator());
  EXPECT_EQ(runtime.target().name, "sm_80");
  EXPECT_EQ(runtime.device_name(), "simulator of sm_80");
  const AttentionSpec spec = parse_spec("{head_dim: 32, lse: true, mask: causal, gqa_ratio: 2}", "spec");
  auto kernel = runtime.kernel(spec);
  EXPECT_EQ(kernel->report().shared_memory, kernel->source().shared_memory);

  DeviceBuffer q(runtime, 2 * 20 * 4 * 32 * 2), k(runtime, 2 * 30 * 2 * 32 * 2), out(runtime, q.bytes()),
      lse(runtime, 2 * 4 * 20 * 4);
  for (int64_t i = 0; i < 2 * 20 * 4 * 32; ++i)
    store_element(q.data(), DataType::bf16, i, 0.01 * static_cast<double>(i % 101) - 0.5);
  for (int64_t i = 0; i < 2 * 30 * 2 * 32; ++i)
    store_element(k.data(), DataType::bf16, i, 0.01 * static_cast<double>(i % 89) - 0.4);
  out.fill(0xff);  // NaN
  lse.fill(0xff);
  ForwardArguments arguments = {.q = {q.data(), DataType::bf16, {2, 20, 4, 32}, {}},
                                .k = {k.data(), DataType::bf16, {2, 30, 2, 32}, {}},
                                .v = {k.data(), DataType::bf16, {2, 30, 2, 32}, {}},
                                .out = {out.data(), DataType::bf16, {2, 20, 4, 32}, {}},
                                .lse = TensorView{lse.data(), DataType::fp32, {2, 4, 20}, {}}};
  kernel->launch(nullptr, arguments);
  runtime.synchronize();
  Verdict verdict = compare_forward(spec, arguments);
  EXPECT_TRUE(verdict.ok) << verdict.message;

  arguments.k.shape[2] = 3;
  EXPECT_THROW(kernel->launch(nullptr, arguments), Error);
}

TEST(Kernel, FromMemoryTheSecondTime) {
  Runtime runtime(simulator());
  AttentionSpec spec = parse_spec("head_dim: 32", "spec");
  CacheResult from;
  auto kernel = runtime.kernel(spec, &from);
  EXPECT_EQ(from, CacheResult::compiled);
  spec.name = "another name";
  EXPECT_EQ(runtime.kernel(spec, &from), kernel);
  EXPECT_EQ(from, CacheResult::memory);
  spec.lse = true;
  EXPECT_NE(runtime.kernel(spec, &from), kernel);
  EXPECT_EQ(from, CacheResult::compiled);
}

TEST(Kernel, OneForAllThreads) {
  Runtime runtime(simulator());
  const AttentionSpec spec = parse_spec("head_dim: 32", "spec");
  std::vector<std::shared_ptr<const Kernel>> kernels(8);
  std::atomic<int> compiled{0};
  {
    std::vector<std::jthread> threads;
    for (auto& kernel : kernels)
      threads.emplace_back([&] {
        CacheResult from;
        kernel = runtime.kernel(spec, &from);
        compiled += from == CacheResult::compiled;
      });
  }
  EXPECT_EQ(compiled, 1);
  for (const auto& kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
}

TEST(Kernel, OutlivesItsRuntime) {
  std::shared_ptr<const Kernel> kernel;
  {
    Runtime runtime(simulator());
    kernel = runtime.kernel(parse_spec("head_dim: 32", "spec"));
  }
  EXPECT_EQ(kernel->target().name, "sm_80");
}

TEST(Kernel, PrepareMakesKernelsReady) {
  Runtime runtime(simulator());
  const AttentionSpec specs[] = {parse_spec("head_dim: 32", "a"), parse_spec("head_dim: 40", "b")};
  runtime.prepare(specs);
  for (const auto& spec : specs) {
    CacheResult from;
    runtime.kernel(spec, &from);
    EXPECT_EQ(from, CacheResult::memory);
  }
}

TEST(Kernel, RefusesSpecs) {
  Runtime runtime(simulator());
  AttentionSpec invalid = parse_spec("head_dim: 32", "spec");
  invalid.head_dim.qk = 33;
  EXPECT_NE(
      test::message_of<Error>([&] { runtime.kernel(invalid); }).find("the spec is not valid:\n  head_dim"),
      std::string::npos);
  EXPECT_THROW(runtime.kernel(parse_spec("{head_dim: 32, pass: decode}", "spec")), Error);
}

TEST(Kernel, UnknownSimulatedTarget) {
  RuntimeOptions options = simulator();
  options.simulated_target = "sm_81";
  EXPECT_NE(test::message_of<Error>([&] { Runtime runtime(options); }).find("sm_81"), std::string::npos);
}

// Case H8, and the same kernel through the cache: same bytes, same figures.
TEST(Compile, ForEachTargetItsOwnEntry) {
  ScopedEnvironment nvrtc("TILEWRIGHT_NVRTC", TILEWRIGHT_BINARY_DIR "/fakes/fake_nvrtc.so");
  EXPECT_EQ(test::in_child([] {
              TemporaryDirectory directory;
              const AttentionSpec spec = parse_spec("head_dim: 64", "spec");
              const RuntimeOptions options = {.cache_directory = directory / "cache"};
              std::string images;
              for (CacheResult expected : {CacheResult::compiled, CacheResult::disk})
                for (const char* target : {"sm_80", "sm_90a"})
                  for (bool ptx : {false, true}) {
                    CompiledKernel kernel = compile(spec, target_by_name(target), options, ptx);
                    EXPECT_EQ(kernel.from, expected);
                    EXPECT_EQ(kernel.report.shared_memory, kernel.source.shared_memory);
                    EXPECT_NE(kernel.image.find(ptx ? "compute_" : "sm_"), std::string::npos) << kernel.image;
                    images += kernel.image + "\n";
                  }
              EXPECT_EQ(images.substr(0, images.size() / 2), images.substr(images.size() / 2));
              EXPECT_EQ(test::files_below(directory / "cache").size(), 4u);
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

TEST(Compile, RefusesWithTheReasons) {
  AttentionSpec spec = parse_spec("head_dim: 64", "spec");
  spec.gqa_ratio = 0;
  EXPECT_NE(test::message_of<Error>([&] { compile(spec, target_by_name("sm_80")); }).find("gqa_ratio"),
            std::string::npos);
}

TEST(LoadSpec, ReadsFilesAndNamesThem) {
  TemporaryDirectory directory;
  test::write_text(directory / "good.yaml", "head_dim: 64\n");
  EXPECT_EQ(load_spec(directory / "good.yaml").head_dim.qk, 64);
  test::write_text(directory / "bad.yaml", "head_dim: 64\nmusk: causal\n");
  EXPECT_NE(test::message_of<SpecError>([&] {
              load_spec(directory / "bad.yaml");
            }).find((directory / "bad.yaml").string() + ":2:1: "),
            std::string::npos);
  test::write_text(directory / "empty.yaml", "");
  EXPECT_THROW(load_spec(directory / "empty.yaml"), SpecError);
  for (const auto& path : {directory / "absent.yaml", directory.path()}) {
    const std::string message = test::message_of<Error>([&] { load_spec(path); });
    EXPECT_NE(message.find("cannot read the spec " + path.string()), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace tilewright
