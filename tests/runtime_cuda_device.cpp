// The way through a CUDA device, on a driver and a compiler that are stand-ins. Each test runs in a child
// process: both libraries are loaded once a process.
#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/error.h"
#include "runtime/device_buffer.h"
#include "runtime/include/tilewright/tilewright.hpp"
#include "tests/support/runtime_support.h"

namespace tilewright {
namespace {

using test::ScopedEnvironment;
using test::TemporaryDirectory;

class CudaDeviceTest : public testing::Test {
 protected:
  RuntimeOptions options(DeviceChoice::Kind kind = DeviceChoice::Kind::cuda) const {
    return {.device = {.kind = kind}, .cache_directory = directory_ / "cache"};
  }

  std::string log() const { return test::read_text(directory_ / "log"); }

  /// One launch of a small problem.
  void launch(const Kernel& kernel, Runtime& runtime, Stream stream = nullptr) const {
    DeviceBuffer memory(runtime, 3 * 100 * 2 * 64 * 2);
    TensorView view{.data = memory.data(), .dtype = DataType::bf16, .shape = {3, 100, 2, 64}};
    kernel.launch(stream, {.q = view, .k = view, .v = view, .out = view});
  }

  TemporaryDirectory directory_;
  ScopedEnvironment driver_{"TILEWRIGHT_DRIVER", TILEWRIGHT_BINARY_DIR "/fakes/fake_driver.so"};
  ScopedEnvironment nvrtc_{"TILEWRIGHT_NVRTC", TILEWRIGHT_BINARY_DIR "/fakes/fake_nvrtc.so"};
  ScopedEnvironment log_{"FAKE_DRIVER_LOG", (directory_ / "log").string()};
  ScopedEnvironment count_{"FAKE_NVRTC_COUNT", (directory_ / "count").string()};
  const AttentionSpec spec_ = parse_spec("{head_dim: 64, blocks: {family: sm80, m: 128}}", "spec");
};

#define IN_CHILD(...)                             \
  EXPECT_EQ(test::in_child([&]() -> int {         \
              __VA_ARGS__;                        \
              return testing::Test::HasFailure(); \
            }),                                   \
            0)

TEST_F(CudaDeviceTest, CompilesLoadsAndLaunches) {
  IN_CHILD({
    {
      Runtime runtime(options());
      EXPECT_FALSE(runtime.is_simulator());
      EXPECT_EQ(runtime.device_name(), "Fake GPU");
      EXPECT_EQ(runtime.target().name, "sm_90a");
      CacheResult from;
      auto kernel = runtime.kernel(spec_, &from);
      EXPECT_EQ(from, CacheResult::compiled);
      EXPECT_EQ(runtime.kernel(spec_, &from), kernel);
      EXPECT_EQ(from, CacheResult::memory);
      AttentionSpec named = spec_;
      named.name = "by another name";
      EXPECT_EQ(runtime.kernel(named, &from), kernel);
      EXPECT_EQ(kernel->report().registers, 42) << "asked of the driver where the compiler does not say";
      launch(*kernel, runtime, reinterpret_cast<Stream>(77));
      const int shared = kernel->source().shared_memory;
      EXPECT_EQ(log(),
                "retain primary\nload image of --gpu-architecture=sm_90a --std=c++17 --ptxas-optio\n"
                "function attention_forward\n" +
                    (shared > 48 * 1024 ? "shared memory " + std::to_string(shared) + "\n" : "") +
                    "launch grid 6 1 1 threads " + std::to_string(kernel->source().threads) + " shared " +
                    std::to_string(shared) + " stream 77 context primary\n");
    }
    EXPECT_TRUE(log().ends_with("unload\nrelease primary\n")) << log();
  });
  // Case H9 in part: another process finds it on disk.
  IN_CHILD({
    Runtime runtime(options());
    CacheResult from;
    runtime.kernel(spec_, &from);
    EXPECT_EQ(from, CacheResult::disk);
  });
  EXPECT_EQ(test::count_lines(directory_ / "count"), 1);
}

TEST_F(CudaDeviceTest, DiskHitWithoutACompiler) {
  IN_CHILD(Runtime(options()).kernel(spec_));
  ScopedEnvironment nowhere("TILEWRIGHT_NVRTC", "/nowhere");
  IN_CHILD({
    Runtime runtime(options());
    CacheResult from;
    runtime.kernel(spec_, &from);
    EXPECT_EQ(from, CacheResult::disk);
    const AttentionSpec other = parse_spec("head_dim: 72", "spec");
    EXPECT_NE(test::message_of<Error>([&] { runtime.kernel(other); }).find("TILEWRIGHT_NVRTC is '/nowhere'"),
              std::string::npos);
  });
}

// Case I1, from the device on.
TEST_F(CudaDeviceTest, DeviceNewerThanNvrtc) {
  ScopedEnvironment capability("FAKE_DRIVER_CAPABILITY", "12.0");
  IN_CHILD({
    Runtime runtime(options());
    EXPECT_EQ(runtime.target().name, "sm_120a");
    auto kernel = runtime.kernel(spec_);
    EXPECT_NE(log().find("load image of --gpu-architecture=compute_90 "), std::string::npos) << log();
    EXPECT_EQ(kernel->report().notes.size(), 1u);
  });
}

// Case I2, its last entry: nobody knows the device; the driver translates.
TEST_F(CudaDeviceTest, UnknownDeviceGetsPtx) {
  ScopedEnvironment capability("FAKE_DRIVER_CAPABILITY", "13.0");
  IN_CHILD({
    Runtime runtime(options());
    runtime.kernel(spec_);
    EXPECT_NE(log().find("load image of --gpu-architecture=compute_8"), std::string::npos) << log();
  });
}

TEST_F(CudaDeviceTest, DeviceTooOld) {
  ScopedEnvironment capability("FAKE_DRIVER_CAPABILITY", "7.5");
  IN_CHILD({
    const std::string message = test::message_of<Error>([&] { Runtime runtime(options()); });
    EXPECT_NE(message.find("no kernels for CUDA device 0: compute capability 7.5"), std::string::npos)
        << message;
  });
}

TEST_F(CudaDeviceTest, NoSuchOrdinal) {
  IN_CHILD({
    RuntimeOptions wrong = options();
    wrong.device.ordinal = 3;
    EXPECT_EQ(test::message_of<Error>([&] { Runtime runtime(wrong); }),
              "CUDA device 3 does not exist; there are 1, counted from 0");
  });
}

TEST_F(CudaDeviceTest, NoDriver) {
  ScopedEnvironment none("TILEWRIGHT_DRIVER", "/nowhere/libcuda.so.1");
  IN_CHILD({
    const std::string message = test::message_of<Error>([&] { Runtime runtime(options()); });
    EXPECT_NE(message.find("no CUDA driver"), std::string::npos) << message;
    EXPECT_NE(message.find("/nowhere/libcuda.so.1"), std::string::npos) << message;
    EXPECT_NE(message.find("TILEWRIGHT_DRIVER"), std::string::npos) << message;
    EXPECT_TRUE(Runtime(options(DeviceChoice::Kind::automatic)).is_simulator());
  });
}

TEST_F(CudaDeviceTest, IncompleteDriver) {
  ScopedEnvironment none("TILEWRIGHT_DRIVER", TILEWRIGHT_BINARY_DIR "/fakes/fake_nvrtc.so");
  IN_CHILD(EXPECT_NE(test::message_of<Error>([&] { Runtime runtime(options()); }).find("lacks cuInit"),
                     std::string::npos));
}

TEST_F(CudaDeviceTest, DriverWithoutDevices) {
  ScopedEnvironment none("FAKE_DRIVER_DEVICES", "0");
  IN_CHILD({
    EXPECT_EQ(test::message_of<Error>([&] { Runtime runtime(options()); }),
              "the CUDA driver 12.4 sees no device");
    EXPECT_TRUE(Runtime(options(DeviceChoice::Kind::automatic)).is_simulator());
  });
}

TEST_F(CudaDeviceTest, FailedLaunchesAreErrors) {
  ScopedEnvironment fail("FAKE_DRIVER_FAIL", "1");
  IN_CHILD({
    Runtime runtime(options());
    auto kernel = runtime.kernel(spec_);
    EXPECT_EQ(test::message_of<Error>([&] { launch(*kernel, runtime); }),
              "cannot launch the kernel: CUDA_ERROR_FAKE, as asked (719)");
  });
}

// --- the sm90 family

class HopperDeviceTest : public CudaDeviceTest {
 protected:
  /// The log's lines that start with `word`.
  std::vector<std::string> lines(const std::string& word) const {
    std::istringstream text(log());
    std::vector<std::string> found;
    for (std::string line; std::getline(text, line);)
      if (line.starts_with(word)) found.push_back(line);
    return found;
  }
  /// One launch of `tiles` tiles; what the driver saw of it.
  std::string launch_of(Runtime& runtime, int64_t tiles, uintptr_t stream,
                        const LaunchOptions& options = {}) const {
    return launch_of(hopper_, runtime, tiles, stream, options);
  }
  std::string launch_of(const AttentionSpec& spec, Runtime& runtime, int64_t tiles, uintptr_t stream,
                        const LaunchOptions& options = {}) const {
    const int64_t width = spec.head_dim.qk;
    DeviceBuffer memory(runtime, tiles * width * 2);
    TensorView view{.data = memory.data(), .dtype = DataType::bf16, .shape = {tiles, 1, 1, width}};
    runtime.kernel(spec)->launch(reinterpret_cast<Stream>(stream),
                                 {.q = view, .k = view, .v = view, .out = view}, options);
    const std::string launch = lines("launch ").back();
    return launch.substr(0, launch.find(" 1 1 ")) + ", " + lines("tiles ").back();
  }

  ScopedEnvironment shows_{"FAKE_DRIVER_HOPPER", "1"};
  const AttentionSpec hopper_ = parse_spec("{head_dim: 64, blocks: {m: 128, n: 96}}", "spec");
};

TEST_F(HopperDeviceTest, MakesTensorMaps) {
  IN_CHILD({
    Runtime runtime(options());
    auto kernel = runtime.kernel(hopper_);
    EXPECT_EQ(kernel->schedule().family, Family::sm90);
    launch(*kernel, runtime, nullptr);
    EXPECT_EQ(lines("map "),
              (std::vector<std::string>{"map bf16 64x100x2x3 strides 256 128 25600 box 64 64 1 1 swizzled",
                                        "map bf16 64x100x2x3 strides 256 128 25600 box 64 96 1 1 swizzled",
                                        "map bf16 64x100x2x3 strides 256 128 25600 box 64 96 1 1 swizzled"}));
  });
}

TEST_F(HopperDeviceTest, TheDriverMayRefuseAMap) {
  ScopedEnvironment refuses("FAKE_DRIVER_REFUSES_MAPS", "1");
  IN_CHILD({
    Runtime runtime(options());
    auto kernel = runtime.kernel(hopper_);
    EXPECT_EQ(
        test::message_of<Error>([&] { launch(*kernel, runtime); }),
        "cannot launch the kernel: the driver refused the tensor map of q (sizes 64, 100, 2, 3; strides in "
        "bytes 256, 128, 25600): CUDA_ERROR_FAKE, as asked (1)");
    EXPECT_TRUE(lines("launch").empty());
  });
}

TEST_F(HopperDeviceTest, BlocksShareTilesByACounterOfTheStream) {
  IN_CHILD({
    Runtime runtime(options());
    EXPECT_EQ(launch_of(runtime, 8, 7), "launch grid 8, tiles 8 counters none");
    EXPECT_EQ(launch_of(runtime, 9, 7), "launch grid 8, tiles 9 counters 0");
    EXPECT_EQ(launch_of(runtime, 30, 8), "launch grid 8, tiles 30 counters 1");
    EXPECT_EQ(launch_of(runtime, 31, 7), "launch grid 8, tiles 31 counters 0");
    // The legacy stream has two names.
    EXPECT_EQ(launch_of(runtime, 20, 0), "launch grid 8, tiles 20 counters 2");
    EXPECT_EQ(launch_of(runtime, 20, 1), "launch grid 8, tiles 20 counters 2");
  });
}

TEST_F(HopperDeviceTest, EveryLaunchRunsTheVariantOfItsShape) {
  IN_CHILD({
    Runtime runtime(options());
    auto kernel = runtime.kernel(parse_spec("{head_dim: 72, mask: causal}", "spec"));
    EXPECT_EQ(kernel->variants().size(), 2u);
    EXPECT_EQ(lines("load").size(), 2u) << "all are loaded before the first launch";
    DeviceBuffer memory(runtime, 2 * 2100 * 9 * 72 * 2);
    const auto threads = [&](int64_t batch, int64_t seqlen) {
      TensorView view{.data = memory.data(), .dtype = DataType::bf16, .shape = {batch, seqlen, 9, 72}};
      kernel->launch(nullptr, {.q = view, .k = view, .v = view, .out = view});
      return lines("launch ").back();
    };
    const std::string brief = threads(2, 1024), lengthy = threads(2, 2100);
    EXPECT_NE(brief.find("threads 384"), std::string::npos) << brief;
    EXPECT_NE(lengthy.find("threads 512"), std::string::npos) << lengthy;
    EXPECT_EQ(
        kernel->variant_for({.batch = 2, .heads = 9, .seqlen_q = 1024, .seqlen_kv = 1024}).schedule.warps,
        12);
    EXPECT_EQ(kernel->schedule().warps, 16);
    EXPECT_EQ(kernel->variants()[0].buckets, (std::vector<std::string_view>{"rows", "few", "short"}));
    EXPECT_EQ(kernel->variants()[1].buckets, (std::vector<std::string_view>{"long"}));
  });
}

TEST_F(HopperDeviceTest, AMarginLeavesMultiprocessorsFree) {
  IN_CHILD({
    Runtime runtime(options());
    EXPECT_EQ(launch_of(runtime, 20, 7, {.sm_margin = 3}), "launch grid 5, tiles 20 counters 0");
    EXPECT_EQ(launch_of(runtime, 6, 7, {.sm_margin = 3}), "launch grid 5, tiles 6 counters 0");
    EXPECT_EQ(launch_of(runtime, 5, 7, {.sm_margin = 3}), "launch grid 5, tiles 5 counters none");
    EXPECT_EQ(launch_of(runtime, 20, 7, {.sm_margin = 6}), "launch grid 2, tiles 20 counters 0");
    for (int margin : {-1, 8})
      EXPECT_EQ(
          test::message_of<Error>([&] { launch_of(runtime, 20, 7, {.sm_margin = margin}); }),
          "sm_margin is " + std::to_string(margin) + ", expected 0 to 7: the device has 8 multiprocessors");
  });
}

TEST_F(HopperDeviceTest, ClustersShareTilesWithoutACounter) {
  const AttentionSpec spec = parse_spec("{head_dim: 128, blocks: {m: 128, n: 96, cluster: 2}}", "spec");
  IN_CHILD({
    Runtime runtime(options());
    EXPECT_EQ(launch_of(spec, runtime, 3, 7), "launch grid 6, tiles 3 counters none");
    EXPECT_NE(lines("launch ").back().find(" clusters of 2"), std::string::npos);
    EXPECT_EQ(launch_of(spec, runtime, 20, 7), "launch grid 8, tiles 20 counters none");
    EXPECT_EQ(launch_of(spec, runtime, 20, 7, {.sm_margin = 1}), "launch grid 6, tiles 20 counters none");
    EXPECT_EQ(launch_of(spec, runtime, 20, 7, {.sm_margin = 7}), "launch grid 2, tiles 20 counters none");
    EXPECT_EQ(launch_of(spec, runtime, 20, 0x1000), "launch grid 8, tiles 20 counters none") << "captured";
    launch_of(spec, runtime, 20, 7, {.programmatic_dependent_launch = true});
    EXPECT_TRUE(lines("launch ").back().ends_with(" clusters of 2 early"));
    launch_of(runtime, 20, 7);
    EXPECT_EQ(lines("launch ").back().find(" clusters"), std::string::npos);
  });
}

TEST_F(HopperDeviceTest, OnlyKernelsThatWaitMayStartBeforeThePreviousLaunchEnds) {
  IN_CHILD({
    Runtime runtime(options());
    const auto early = [&] { return lines("launch ").back().ends_with(" early"); };
    launch_of(runtime, 20, 7);
    EXPECT_FALSE(early());
    launch_of(runtime, 20, 7, {.programmatic_dependent_launch = true});
    EXPECT_TRUE(early());
    auto kernel = runtime.kernel(parse_spec("{head_dim: 64, blocks: {family: sm80}}", "spec"));
    EXPECT_EQ(kernel->source().text.find("griddepcontrol"), std::string::npos);
    EXPECT_NE(runtime.kernel(hopper_)->source().text.find("griddepcontrol.wait"), std::string::npos);
    DeviceBuffer memory(runtime, 128);
    TensorView view{.data = memory.data(), .dtype = DataType::bf16, .shape = {1, 1, 1, 64}};
    unsetenv("FAKE_DRIVER_HOPPER");
    kernel->launch(nullptr, {.q = view, .k = view, .v = view, .out = view},
                   {.programmatic_dependent_launch = true});
    EXPECT_FALSE(early());
  });
}

// Case K1.
TEST_F(HopperDeviceTest, APreparedKernelIsFoundWithoutTheDriver) {
  IN_CHILD({
    Runtime runtime(options());
    const std::string before = log();
    AttentionSpec named = hopper_;
    named.name = "a name";
    const std::string message = test::message_of<Error>([&] { runtime.prepared_kernel(named); });
    EXPECT_TRUE(message.starts_with("not prepared: ")) << message;
    EXPECT_NE(message.find("head_dim: 64"), std::string::npos) << message;
    EXPECT_EQ(log(), before) << "the driver was called";
    auto kernel = runtime.kernel(hopper_);
    const std::string loaded = log();
    EXPECT_EQ(runtime.prepared_kernel(named), kernel);
    EXPECT_EQ(log(), loaded);
  });
}

TEST_F(HopperDeviceTest, LaunchesThatMayOverlapGetNoCounter) {
  IN_CHILD({
    Runtime runtime(options());
    EXPECT_EQ(launch_of(runtime, 20, 0x1000), "launch grid 20, tiles 20 counters none") << "captured";
    EXPECT_EQ(launch_of(runtime, 20, 2), "launch grid 20, tiles 20 counters none") << "the per-thread stream";
    for (uintptr_t stream = 100; stream < 164; ++stream)
      EXPECT_EQ(launch_of(runtime, 20, stream),
                "launch grid 8, tiles 20 counters " + std::to_string(stream - 100));
    EXPECT_EQ(launch_of(runtime, 20, 200), "launch grid 20, tiles 20 counters none") << "all are taken";
    EXPECT_EQ(launch_of(runtime, 20, 163), "launch grid 8, tiles 20 counters 63");
  });
}

TEST_F(HopperDeviceTest, CountersAreZeroAtFirstAndFreedBeforeTheKernel) {
  IN_CHILD({
    { Runtime(options()).kernel(hopper_); }
    const std::string text = log();
    EXPECT_NE(text.find("allocate 8192\nfill 8192 bytes with 0\nsynchronize\n"), std::string::npos) << text;
    EXPECT_TRUE(text.ends_with("free\nunload\nrelease primary\n")) << text;
  });
}

TEST_F(CudaDeviceTest, NothingToDoIsNotLaunched) {
  IN_CHILD({
    Runtime runtime(options());
    auto kernel = runtime.kernel(spec_);
    TensorView empty{.dtype = DataType::bf16, .shape = {0, 100, 2, 64}};
    kernel->launch(nullptr, {.q = empty, .k = empty, .v = empty, .out = empty});
    EXPECT_EQ(log().find("launch"), std::string::npos);
  });
}

TEST_F(CudaDeviceTest, BuffersGoThereAndBack) {
  IN_CHILD({
    Runtime runtime(options());
    DeviceBuffer buffer(runtime, 5);
    buffer.upload("abcd");
    char back[5];
    buffer.download(back);
    EXPECT_STREQ(back, "abcd");
    buffer.fill('x');
    buffer.download(back);
    EXPECT_EQ(std::string(back, 5), "xxxxx");
  });
}

}  // namespace
}  // namespace tilewright
