#include "tuner/gpu_bench.h"

#include <functional>
#include <optional>
#include <thread>

#include "codegen/backward_plan.h"
#include "codegen/error.h"
#include "runtime/driver.h"
#include "tuner/child_process.h"
#include "tuner/message.h"
#include "tuner/nvml.h"

namespace tilewright {
namespace {

GpuOfHost describe_gpu(int ordinal) {
  const Driver& cuda = driver();
  CUdevice device = 0;
  check(cuda.device_get(&device, ordinal), "open the CUDA device");
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    check(cuda.device_attribute(&value, which, device), "ask for the device's properties");
    return value;
  };
  char name[256] = "", bus[32] = "";
  size_t memory = 0;
  check(cuda.device_name(name, sizeof name, device), "ask for the device's name");
  check(cuda.device_memory(&memory, device), "ask for the device's memory");
  check(cuda.device_pci_bus(bus, sizeof bus, device), "ask for the device's place");
  const TargetChoice choice = target_for_device(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                                                attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  GpuOfHost result;
  result.ordinal = ordinal;
  result.as_ptx = choice.as_ptx;
  if (!choice.target) result.refused = choice.reason;
  result.pci_bus = bus;
  result.gpu.name = name;
  result.gpu.target = choice.target ? std::string(choice.target->name) : "";
  result.gpu.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  result.gpu.l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  result.gpu.memory_bytes = static_cast<int64_t>(memory);
  result.megahertz = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000;
  result.driver = Nvml(bus).driver_version();
  if (result.driver.empty()) result.driver = "CUDA " + driver_version_text(cuda);
  return result;
}

void write_gpu(MessageWriter& message, const GpuOfHost& one) {
  message.put(one.ordinal).put(one.gpu.name).put(one.gpu.target).put(one.gpu.multiprocessors);
  message.put(one.gpu.l2_bytes).put(one.gpu.memory_bytes).put(one.megahertz).put(one.driver).put(one.pci_bus);
  message.put(one.as_ptx ? 1 : 0).put(one.refused);
}

GpuOfHost read_gpu(MessageReader& message) {
  GpuOfHost one;
  one.ordinal = message.small_integer();
  one.gpu.name = message.text();
  one.gpu.target = message.text();
  one.gpu.multiprocessors = message.small_integer();
  one.gpu.l2_bytes = message.integer();
  one.gpu.memory_bytes = message.integer();
  one.megahertz = message.small_integer();
  one.driver = message.text();
  one.pci_bus = message.text();
  one.as_ptx = message.integer() != 0;
  one.refused = message.text();
  return one;
}

void describe_gpus(Channel& channel) {
  MessageWriter message;
  try {
    std::string why;
    if (!cuda_device_available(&why)) throw Error(ErrorKind::environment, why);
    int count = 0;
    check(driver().device_count(&count), "count the CUDA devices");
    message.put("").put(count);
    for (int i = 0; i < count; ++i) write_gpu(message, describe_gpu(i));
  } catch (const Error& error) {
    message = {};
    message.put(error.what());
  }
  channel.send(message.bytes());
}

class GpuBench final : public Bench {
 public:
  GpuBench(const AttentionSpec& spec, const std::vector<Schedule>& candidates, Gate& gate,
           const GpuBenchOptions& options)
      : spec_(spec), schedules_(candidates), gate_(gate), executables_(candidates.size()) {
    const Driver& cuda = driver();
    CUdevice device = 0;
    CUcontext context = nullptr;
    char bus[32] = "";
    check(cuda.device_get(&device, options.ordinal), "open the CUDA device");
    check(cuda.primary_context_retain(&context, device), "use the CUDA device");
    check(cuda.context_push(context), "make the CUDA context current");
    check(cuda.device_pci_bus(bus, sizeof bus, device), "ask for the device's place");
    nvml_ = std::make_unique<Nvml>(bus);
    device_ = make_cuda_device(options.ordinal);
    cache_ = std::make_unique<KernelCache>(KernelCache::Options{.directory = options.cache_directory});
    check(cuda.stream_create(&stream_, CU_STREAM_NON_BLOCKING), "make a stream");
    // Twice L2 would do if it were exact; some of it may be set aside for other uses.
    flush_bytes_ = std::max<size_t>(static_cast<size_t>(options.gpu.l2_bytes) * 5 / 2, size_t{32} << 20);
    flush_ = device_->allocate(flush_bytes_);
    events_.resize(2 * candidates.size());
    for (CUevent& event : events_) check(cuda.event_create(&event, CU_EVENT_DEFAULT), "make an event");
  }

  // Memory, events and the stream end with the process, which serves one spec.

  std::string refuse(int candidate) override {
    const Schedule& schedule = schedules_.at(candidate);
    const Source source = emit(spec_, schedule, device_->target(), Backend::device);
    CacheResult from = CacheResult::disk;
    auto executable = device_->load(spec_, schedule, source, *cache_, from);
    std::string reason = gate_.refuse(*device_, schedule, *executable);
    if (reason.empty()) executables_[candidate] = std::move(executable);
    return reason;
  }

  void use_shape(const LaunchShape& shape) override {
    for (void* memory : memory_) device_->free(memory);
    memory_.clear();
    inputs_.emplace(spec_, shape, LaunchInputs::Options{});
    for (InputTensor& tensor : inputs_->tensors) {
      memory_.push_back(device_->allocate(tensor.bytes.size()));
      device_->upload(memory_.back(), tensor.bytes.data(), tensor.bytes.size());
      tensor.bytes = {};
    }
    const bool backward = spec_.pass == Pass::backward;
    if (backward)
      backward_ = inputs_->backward(memory_);
    else
      forward_ = inputs_->forward(memory_);
    int64_t most = 0;
    for (size_t i = 0; i < schedules_.size(); ++i)
      if (executables_[i])
        most = std::max(most, workspace_size(spec_, schedules_[i], all_sequences(spec_, shape)));
    memory_.push_back(device_->allocate(static_cast<size_t>(most)));
    (backward ? backward_.workspace : forward_.workspace) = memory_.back();
    (backward ? backward_.workspace_bytes : forward_.workspace_bytes) = static_cast<size_t>(most);
  }

  std::vector<Sample> round(const std::vector<int>& order) override {
    const Driver& cuda = driver();
    const bool throttled_before = nvml_->throttled();
    for (size_t i = 0; i < order.size(); ++i) {
      const auto launch = prepared(order[i]);
      check(cuda.fill_bytes_on(reinterpret_cast<CUdeviceptr>(flush_), static_cast<unsigned char>(++fills_),
                               flush_bytes_, stream_),
            "clear the L2 cache");
      check(cuda.event_record(events_[2 * i], stream_), "note the time");
      launch();
      check(cuda.event_record(events_[2 * i + 1], stream_), "note the time");
    }
    wait_for(events_[2 * order.size() - 1]);
    const bool throttled = throttled_before || nvml_->throttled();
    std::vector<Sample> samples;
    for (size_t i = 0; i < order.size(); ++i) {
      float milliseconds = 0;
      check(cuda.event_elapsed(&milliseconds, events_[2 * i], events_[2 * i + 1]), "read the time");
      samples.push_back({.microseconds = milliseconds * 1e3, .throttled = throttled});
    }
    return samples;
  }

 private:
  /// Arguments are checked and maps described beforehand: what is timed is the launch of all kernels of the
  /// pass.
  std::function<void()> prepared(int candidate) const {
    const Schedule& schedule = schedules_.at(candidate);
    const Executable* executable = executables_.at(candidate).get();
    if (spec_.pass == Pass::backward)
      return [this, executable, launch = prepare_backward(spec_, schedule, backward_)] {
        executable->launch(stream_, launch, backward_);
      };
    return [this, executable, launch = prepare_launch(spec_, schedule, forward_)] {
      executable->launch(stream_, launch, forward_, {});
    };
  }

  // Asks now and then, so that a kernel that hangs leaves this process alive to be ended.
  static void wait_for(CUevent event) {
    for (;;) {
      const CUresult state = driver().event_query(event);
      if (state == CUDA_SUCCESS) return;
      if (state != CUDA_ERROR_NOT_READY) check(state, "finish what was launched");
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  AttentionSpec spec_;
  std::vector<Schedule> schedules_;
  Gate& gate_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<KernelCache> cache_;
  std::unique_ptr<Nvml> nvml_;
  std::vector<std::unique_ptr<Executable>> executables_;
  CUstream stream_ = nullptr;
  std::vector<CUevent> events_;
  void* flush_ = nullptr;
  size_t flush_bytes_ = 0;
  unsigned fills_ = 0;
  std::vector<void*> memory_;
  std::optional<LaunchInputs> inputs_;
  ForwardArguments forward_;
  BackwardArguments backward_;
};

}  // namespace

std::vector<GpuOfHost> gpus_of_host() {
  ChildProcess child(describe_gpus);
  const auto reply = child.channel().receive(60);
  if (!reply)
    throw Error(ErrorKind::environment, "the process that asks for GPUs gives no answer; it " + child.stop());
  child.wait();
  MessageReader message(*reply);
  if (const std::string why = message.text(); !why.empty()) throw Error(ErrorKind::environment, why);
  std::vector<GpuOfHost> gpus(static_cast<size_t>(message.integer()));
  for (GpuOfHost& one : gpus) one = read_gpu(message);
  return gpus;
}

std::unique_ptr<Bench> make_gpu_bench(const AttentionSpec& spec, const std::vector<Schedule>& candidates,
                                      Gate& gate, const GpuBenchOptions& options) {
  return std::make_unique<GpuBench>(spec, candidates, gate, options);
}

}  // namespace tilewright
