#include <optional>

#include "codegen/error.h"
#include "runtime/build.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/tile_counters.h"

namespace tilewright {
namespace {

/// A context of one device; retained if it is the primary one.
class Context {
 public:
  explicit Context(CUdevice device) : device_(device) {
    const Driver& cuda = driver();
    CUdevice current = -1;
    check(cuda.context_get_current(&context_), "ask for the current CUDA context");
    if (context_ && cuda.context_get_device(&current) == CUDA_SUCCESS && current == device_) return;
    check(cuda.primary_context_retain(&context_, device_), "use the CUDA device");
    retained_ = true;
  }
  ~Context() {
    if (retained_) driver().primary_context_release(device_);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  CUcontext get() const { return context_; }

 private:
  CUdevice device_;
  CUcontext context_ = nullptr;
  bool retained_ = false;
};

/// Makes a context current for a scope, unless it already is; the caller finds his own afterwards.
class Current {
 public:
  explicit Current(const Context& context) {
    CUcontext present = nullptr;
    check(driver().context_get_current(&present), "ask for the current CUDA context");
    if (present == context.get()) return;
    check(driver().context_push(context.get()), "make the CUDA context current");
    pushed_ = true;
  }
  ~Current() {
    CUcontext popped;
    if (pushed_) driver().context_pop(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  bool pushed_ = false;
};

class CudaExecutable final : public Executable {
 public:
  /// `multiprocessors`: of the device.
  CudaExecutable(std::shared_ptr<const Context> context, int multiprocessors, const Schedule& schedule,
                 const Source& source, const CompiledImage& compiled)
      : context_(std::move(context)),
        multiprocessors_(multiprocessors),
        family_(schedule.family),
        cluster_(schedule.cluster),
        report_(compiled.report),
        waits_(source.text.find("griddepcontrol.wait") != std::string::npos) {
    Current current(*context_);
    load(compiled);
    try {
      prepare(source);
    } catch (...) {
      driver().module_unload(module_);
      throw;
    }
  }

  ~CudaExecutable() override {
    // At the end of a process the driver may be gone; there is nothing left to unload then.
    try {
      Current current(*context_);
      counters_.reset();
      driver().module_unload(module_);
    } catch (const Error&) {
    }
  }

  void launch(Stream stream, const PreparedLaunch& launch, const ForwardArguments&,
              const LaunchOptions& options) const override {
    const int blocks = blocks_to_share_tiles(multiprocessors_, options, cluster_);
    Current current(*context_);
    const int64_t table_blocks = launch.tables.blocks();
    start(stream, before_, table_blocks, &launch.parameters, launch.expressions.bytes, false);
    const bool overlaps = options.programmatic_dependent_launch || table_blocks > 0;
    if (family_ == Family::sm90) {
      // One block fills a multiprocessor: more of them would queue up. Clusters share tiles without a
      // counter.
      const bool share = tiles_to_share(launch.plan.tiles, blocks);
      int* const counters =
          share && cluster_ == 1 ? counters_->counters_for(static_cast<CUstream>(stream)) : nullptr;
      const HopperForwardParameters parameters = hopper_parameters(launch, counters, encode_tensor_map);
      start(stream, main_, counters || (share && cluster_ > 1) ? blocks : launch.plan.tiles, &parameters,
            launch.expressions.bytes, overlaps);
    } else {
      start(stream, main_, launch.plan.tiles, &launch.parameters, launch.expressions.bytes, overlaps);
    }
  }

  void launch(Stream stream, const PreparedBackward& launch, const BackwardArguments&) const override {
    Current current(*context_);
    const unsigned char* const expressions = launch.expressions.bytes;
    start(stream, before_, launch.plan.query_blocks, &launch.parameters, expressions, false);
    if (family_ == Family::sm90 && launch.plan.key_blocks > 0) {
      int* const counters = tiles_to_share(launch.plan.key_blocks, multiprocessors_)
                                ? counters_->counters_for(static_cast<CUstream>(stream))
                                : nullptr;
      const HopperBackwardParameters parameters = hopper_parameters(launch, counters, encode_tensor_map);
      start(stream, main_, counters ? multiprocessors_ : launch.plan.key_blocks, &parameters, expressions,
            false);
    } else {
      start(stream, main_, launch.plan.key_blocks, &launch.parameters, expressions, false);
    }
    start(stream, after_, launch.plan.finish_blocks, &launch.parameters, nullptr, false);
  }

  const CompileReport& report() const override { return report_; }

 private:
  /// A kernel of the module.
  struct Kernel {
    EntryPoint entry;
    CUfunction function = nullptr;
  };

  /// `grid`: blocks, or clusters. A kernel without expressions takes `parameters` alone.
  void start(Stream stream, const Kernel& kernel, int64_t grid, const void* parameters,
             const unsigned char* expressions, bool before_previous_ends) const {
    if (grid == 0) return;
    CUlaunchAttribute attributes[2] = {};
    unsigned count = 0;
    // A kernel that does not wait for the launch before it must not start earlier.
    if (before_previous_ends && waits_) {
      CUlaunchAttribute& overlap = attributes[count++];
      overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      overlap.value.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster_ > 1 && &kernel == &main_) {
      CUlaunchAttribute& clusters = attributes[count++];
      clusters.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      clusters.value.clusterDim.x = static_cast<unsigned>(cluster_);
      clusters.value.clusterDim.y = clusters.value.clusterDim.z = 1;
      grid *= cluster_;
    }
    CUlaunchConfig configuration{};
    configuration.gridDimX = static_cast<unsigned>(grid);
    configuration.gridDimY = configuration.gridDimZ = 1;
    configuration.blockDimX = static_cast<unsigned>(kernel.entry.threads);
    configuration.blockDimY = configuration.blockDimZ = 1;
    configuration.sharedMemBytes = static_cast<unsigned>(kernel.entry.shared_memory);
    configuration.hStream = static_cast<CUstream>(stream);
    configuration.attrs = attributes;
    configuration.numAttrs = count;
    void* list[] = {const_cast<void*>(parameters), const_cast<unsigned char*>(expressions)};
    check(driver().launch(&configuration, kernel.function, list, nullptr), "launch the kernel");
  }

  void load(const CompiledImage& compiled) {
    char log[4096] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
    CUresult result = driver().module_load(&module_, compiled.image.c_str(), 2, options, values);
    if (result == CUDA_SUCCESS) return;
    if (result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
      throw Error(ErrorKind::environment, "the CUDA driver (" + driver_version_text(driver()) +
                                              ") is too old for the PTX of " + report_.compiler +
                                              "; update the driver, or use an older NVRTC");
    try {
      check(result, "load the kernel");
    } catch (const Error& error) {
      throw Error(ErrorKind::device, std::string(error.what()) + (*log ? "\n" : "") + log);
    }
  }

  void prepare(const Source& source) {
    main_ = find({source.kernel_name, source.threads, source.shared_memory});
    if (source.before) before_ = find(*source.before);
    if (source.after) after_ = find(*source.after);
    if (report_.registers == 0)  // PTX: the driver is the one that knows
      check(driver().function_get_attribute(&report_.registers, CU_FUNC_ATTRIBUTE_NUM_REGS, main_.function),
            "ask for the kernel's registers");
    if (family_ == Family::sm90) counters_.emplace();
  }

  Kernel find(const EntryPoint& entry) const {
    Kernel kernel{entry};
    check(driver().module_function(&kernel.function, module_, entry.name.c_str()),
          "find the kernel in its module");
    // 48 KiB is what every kernel may use unasked.
    if (entry.shared_memory > 48 * 1024)
      check(driver().function_set_attribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                            entry.shared_memory),
            "reserve the kernel's shared memory");
    return kernel;
  }

  std::shared_ptr<const Context> context_;
  int multiprocessors_;
  Family family_;
  int cluster_;
  CompileReport report_;
  bool waits_;  // for the launches before it, where those may still run
  CUmodule module_ = nullptr;
  Kernel main_, before_, after_;                  // the last one: of the backward pass
  mutable std::optional<TileCounters> counters_;  // sm90
};

class CudaDevice final : public Device {
 public:
  CudaDevice(CUdevice device, int ordinal, const TargetChoice& choice)
      : device_(device),
        ordinal_(ordinal),
        choice_(choice),
        context_(std::make_shared<const Context>(device)) {
    check(driver().device_attribute(&multiprocessors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
          "ask for the device's multiprocessors");
  }

  bool is_simulator() const override { return false; }
  const Target& target() const override { return *choice_.target; }
  bool wants_ptx() const override { return choice_.as_ptx; }
  Backend backend() const override { return Backend::device; }
  // Records of another generation would not do for PTX that stands for an unknown one.
  std::optional<GpuModel> gpu_model() const override {
    return choice_.as_ptx ? std::nullopt : cuda_gpu_model(ordinal_);
  }
  std::string name() const override {
    char text[256] = "";
    check(driver().device_name(text, sizeof text, device_), "ask for the device's name");
    return text;
  }

  std::unique_ptr<Executable> load(const AttentionSpec& spec, const Schedule& schedule, const Source& source,
                                   KernelCache& cache, CacheResult& from) override {
    auto entry = build_kernel(cache, spec, schedule, source, target(), wants_ptx(), &from);
    return std::make_unique<CudaExecutable>(context_, multiprocessors_, schedule, source, entry->compiled);
  }

  void* allocate(size_t bytes) override {
    Current current(*context_);
    CUdeviceptr pointer = 0;
    check(driver().memory_allocate(&pointer, std::max<size_t>(bytes, 1)), "allocate device memory");
    return reinterpret_cast<void*>(pointer);
  }
  void free(void* data) noexcept override {
    try {
      Current current(*context_);
      driver().memory_free(reinterpret_cast<CUdeviceptr>(data));
    } catch (const Error&) {
    }
  }
  void upload(void* destination, const void* host, size_t bytes) override {
    synchronize();
    Current current(*context_);
    check(driver().copy_to_device(reinterpret_cast<CUdeviceptr>(destination), host, bytes),
          "copy to the device");
  }
  void download(void* host, const void* source, size_t bytes) override {
    synchronize();
    Current current(*context_);
    check(driver().copy_to_host(host, reinterpret_cast<CUdeviceptr>(source), bytes), "copy from the device");
  }
  void fill(void* destination, unsigned char value, size_t bytes) override {
    Current current(*context_);
    check(driver().fill_bytes(reinterpret_cast<CUdeviceptr>(destination), value, bytes),
          "fill device memory");
    synchronize();
  }
  void synchronize() override {
    Current current(*context_);
    check(driver().context_synchronize(), "finish what was launched");
  }

 private:
  CUdevice device_;
  int ordinal_;
  TargetChoice choice_;
  std::shared_ptr<const Context> context_;
  int multiprocessors_ = 0;
};

}  // namespace

bool cuda_device_available(std::string* why) {
  const Driver* cuda = try_driver(why);
  if (!cuda) return false;
  int count = 0;
  if (cuda->device_count(&count) == CUDA_SUCCESS && count > 0) return true;
  if (why) *why = "the CUDA driver " + driver_version_text(*cuda) + " sees no device";
  return false;
}

std::optional<GpuModel> cuda_gpu_model(int ordinal) {
  const Driver* cuda = try_driver();
  CUdevice device = 0;
  char name[256] = "";
  size_t memory = 0;
  int major = 0, minor = 0, multiprocessors = 0, l2 = 0;
  const auto attribute = [&](int& value, CUdevice_attribute which) {
    return cuda->device_attribute(&value, which, device) == CUDA_SUCCESS;
  };
  const bool known = cuda && cuda->device_get(&device, ordinal) == CUDA_SUCCESS &&
                     cuda->device_name(name, sizeof name, device) == CUDA_SUCCESS &&
                     cuda->device_memory(&memory, device) == CUDA_SUCCESS &&
                     attribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) &&
                     attribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) &&
                     attribute(multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) &&
                     attribute(l2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  const Target* target = known ? target_for_device(major, minor).target : nullptr;
  if (!target) return std::nullopt;
  return GpuModel{name, std::string(target->name), multiprocessors, l2, static_cast<int64_t>(memory)};
}

std::unique_ptr<Device> make_cuda_device(int ordinal) {
  std::string why;
  if (!cuda_device_available(&why)) throw Error(ErrorKind::environment, why);
  const Driver& cuda = driver();
  int count = 0;
  check(cuda.device_count(&count), "count the CUDA devices");
  if (ordinal < 0 || ordinal >= count)
    throw Error(ErrorKind::usage, "CUDA device " + std::to_string(ordinal) + " does not exist; there are " +
                                      std::to_string(count) + ", counted from 0");
  CUdevice device = 0;
  int major = 0, minor = 0;
  check(cuda.device_get(&device, ordinal), "open the CUDA device");
  check(cuda.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
        "ask for the device's kind");
  check(cuda.device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
        "ask for the device's kind");
  TargetChoice choice = target_for_device(major, minor);
  if (!choice.target)
    throw Error(ErrorKind::environment,
                "no kernels for CUDA device " + std::to_string(ordinal) + ": " + choice.reason);
  return std::make_unique<CudaDevice>(device, ordinal, choice);
}

}  // namespace tilewright
