// Launch options, captures and kernels from bundles on a GPU.
#include <dlfcn.h>

#include <random>

#include "codegen/error.h"
#include "runtime/build.h"
#include "runtime/bundle_format.h"
#include "runtime/device.h"
#include "runtime/device_buffer.h"
#include "runtime/driver.h"
#include "runtime/reference.h"
#include "tests/support/runtime_support.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

/// Functions of the driver that the runtime itself has no use for.
template <typename Function>
Function* driver_function(Function*, const char* name) {
  void* library = dlopen(driver().path.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* function = reinterpret_cast<Function*>(dlsym(library, name));
  if (!function) throw Error(ErrorKind::environment, std::string("the driver lacks ") + name);
  return function;
}
#define CU(function, name) driver_function(static_cast<decltype(&::function)>(nullptr), name)

constexpr int64_t batch = 2, heads = 9, rows = 1000, columns = 64;
constexpr size_t bytes = batch * heads * rows * columns * 2;

class GpuLaunch : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string why; !cuda_device_available(&why)) GTEST_SKIP() << "no GPU: " << why;
    RuntimeOptions options;
    options.device.kind = DeviceChoice::Kind::cuda;
    options.disk_cache = false;
    runtime_ = std::make_unique<Runtime>(options);
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    for (auto& buffer : buffers_) {
      std::string host(bytes, '\0');
      for (size_t i = 0; i < bytes / 2; ++i)
        store_element(host.data(), DataType::bf16, static_cast<int64_t>(i), normal(random));
      buffer = std::make_unique<DeviceBuffer>(*runtime_, bytes);
      buffer->upload(host.data());
      initial_.push_back(std::move(host));
    }
    // Streams and graphs are made here, in the context that the runtime uses.
    check(driver().primary_context_retain(&context_, 0), "use the device");
    check(driver().context_push(context_), "make the context current");
    ASSERT_EQ(CU(cuStreamCreate, "cuStreamCreate")(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (stream_) CU(cuStreamDestroy, "cuStreamDestroy_v2")(stream_);
    if (!context_) return;
    driver().context_pop(&context_);
    driver().primary_context_release(0);
  }

  TensorView view(int buffer) {
    return {buffers_[buffer]->data(), DataType::bf16, {batch, rows, heads, columns}, {}};
  }
  /// The output of each launch is the query of the next, and is overwritten by the one after that.
  void launch_chain(const Kernel& kernel, const LaunchOptions& options) {
    for (int i = 0; i < 20; ++i)
      kernel.launch(stream_, {.q = view(i % 2), .k = view(2), .v = view(3), .out = view(1 - i % 2)}, options);
  }
  void start_again() {
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i]->upload(initial_[i].data());
  }
  std::string answer() {
    check(CU(cuStreamSynchronize, "cuStreamSynchronize")(stream_), "wait for the stream");
    std::string host(bytes, '\0');
    buffers_[0]->download(host.data());
    return host;
  }
  /// Captures what `action` launches, then runs it twice from the beginning.
  template <typename Action>
  std::string captured(const Action& action) {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    check(CU(cuStreamBeginCapture, "cuStreamBeginCapture_v2")(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL),
          "begin the capture");
    action();
    check(CU(cuStreamEndCapture, "cuStreamEndCapture")(stream_, &graph), "end the capture");
    check(CU(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags")(&executable, graph, 0),
          "instantiate the graph");
    std::string first;
    for (int replay = 0; replay < 2; ++replay) {
      start_again();
      check(CU(cuGraphLaunch, "cuGraphLaunch")(executable, stream_), "launch the graph");
      const std::string now = answer();
      EXPECT_TRUE(replay == 0 || now == first);
      first = now;
    }
    CU(cuGraphExecDestroy, "cuGraphExecDestroy")(executable);
    CU(cuGraphDestroy, "cuGraphDestroy")(graph);
    return first;
  }

  std::unique_ptr<Runtime> runtime_;
  std::array<std::unique_ptr<DeviceBuffer>, 4> buffers_;
  std::vector<std::string> initial_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_F(GpuLaunch, OptionsDoNotChangeABit) {
  for (const char* spec : {"{head_dim: 64}", "{head_dim: 64, mask: causal}",
                           "{head_dim: 64, mask: {window: [100, 0]}, blocks: {family: sm80}}"}) {
    auto kernel = runtime_->kernel(parse_spec(spec, "spec"));
    start_again();
    launch_chain(*kernel, {});
    const std::string expected = answer();
    for (const LaunchOptions& options :
         {LaunchOptions{.programmatic_dependent_launch = true}, LaunchOptions{.sm_margin = 40},
          LaunchOptions{.programmatic_dependent_launch = true, .sm_margin = 100}}) {
      start_again();
      launch_chain(*kernel, options);
      EXPECT_TRUE(answer() == expected) << spec << ", dependent " << options.programmatic_dependent_launch
                                        << ", margin " << options.sm_margin;
    }
    EXPECT_TRUE(captured([&] { launch_chain(*kernel, {.programmatic_dependent_launch = true}); }) == expected)
        << spec << ", captured";
  }
}

// Case K1.
TEST_F(GpuLaunch, ACaptureOutlivesAColdKernel) {
  auto kernel = runtime_->kernel(parse_spec("{head_dim: 64}", "spec"));
  start_again();
  launch_chain(*kernel, {});
  const std::string expected = answer();
  const AttentionSpec cold = parse_spec("{head_dim: 64, softcap: 17.25}", "spec");
  EXPECT_TRUE(captured([&] {
                const std::string message = test::message_of<Error>([&] { runtime_->prepared_kernel(cold); });
                EXPECT_TRUE(message.starts_with("not prepared: ")) << message;
                launch_chain(*runtime_->prepared_kernel(kernel->spec()), {});
              }) == expected);
}

// Case H9.
TEST_F(GpuLaunch, TheSameBitsFromEverywhere) {
  test::TemporaryDirectory directory;
  const AttentionSpec spec = parse_spec("{head_dim: 64, mask: causal}", "spec");
  RuntimeOptions options;
  options.device.kind = DeviceChoice::Kind::cuda;
  options.cache_directory = directory / "cache";
  std::string expected;
  std::vector<KernelVariant> variants;
  for (const CacheResult from : {CacheResult::compiled, CacheResult::disk, CacheResult::bundle}) {
    if (from == CacheResult::bundle) {
      KernelCache cache(cache_options(options));
      std::vector<CacheEntry> entries;
      for (const KernelVariant& variant : variants)
        entries.push_back(
            *build_kernel(cache, spec, variant.schedule, variant.source, runtime_->target(), false));
      test::write_text(directory / "kernels.twb", encode_bundle(entries));
      options.bundles = {directory / "kernels.twb"};
      options.disk_cache = options.compiling = false;
    }
    Runtime runtime(options);
    CacheResult came_from;
    auto kernel = runtime.kernel(spec, &came_from);
    EXPECT_EQ(came_from, from);
    start_again();
    launch_chain(*kernel, {});
    const std::string now = answer();
    if (from == CacheResult::compiled) {
      expected = now;
      variants.assign(kernel->variants().begin(), kernel->variants().end());
    }
    EXPECT_TRUE(now == expected);
    for (size_t i = 0; i < variants.size(); ++i) {
      EXPECT_EQ(kernel->variants()[i].report.registers, variants[i].report.registers);
      EXPECT_EQ(kernel->variants()[i].report.shared_memory, variants[i].report.shared_memory);
    }
  }
}

}  // namespace
}  // namespace tilewright
