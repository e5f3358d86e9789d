#include <future>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "codegen/error.h"
#include "runtime/build.h"
#include "runtime/device.h"

namespace tilewright {
namespace {

class LoadedKernel final : public Kernel {
 public:
  LoadedKernel(std::shared_ptr<Device> device, AttentionSpec spec, Schedule schedule, Source source,
               std::unique_ptr<Executable> executable)
      : device_(std::move(device)),
        spec_(std::move(spec)),
        schedule_(schedule),
        source_(std::move(source)),
        executable_(std::move(executable)) {}

  const AttentionSpec& spec() const override { return spec_; }
  const Schedule& schedule() const override { return schedule_; }
  const Target& target() const override { return device_->target(); }
  const Source& source() const override { return source_; }
  const CompileReport& report() const override { return executable_->report(); }

  void launch(Stream stream, const ForwardArguments& arguments) const override {
    const PreparedLaunch launch = prepare_launch(spec_, schedule_, arguments);
    if (launch.plan.tiles > 0) executable_->launch(stream, launch, arguments);
  }

 private:
  std::shared_ptr<Device> device_;
  AttentionSpec spec_;
  Schedule schedule_;
  Source source_;
  std::unique_ptr<Executable> executable_;
};

/// A cheap hash over what usually differs; equality compares everything.
struct SpecHash {
  size_t operator()(const AttentionSpec& spec) const {
    uint64_t hash = 0;
    auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29; };
    mix(spec.head_dim.qk);
    mix(spec.head_dim.v);
    mix(static_cast<uint64_t>(spec.dtype.q));
    mix(spec.gqa_ratio);
    mix(static_cast<uint64_t>(spec.mask.kind));
    mix(spec.mask.left);
    mix(spec.mask.right);
    mix(static_cast<uint64_t>(spec.layout));
    mix(spec.lse);
    mix(spec.blocks.m.value_or(0));
    mix(spec.blocks.n.value_or(0));
    return hash;
  }
};

std::shared_ptr<Device> make_device(const RuntimeOptions& options) {
  using Kind = DeviceChoice::Kind;
  const bool cuda = options.device.kind == Kind::cuda ||
                    (options.device.kind == Kind::automatic && cuda_device_available());
  if (cuda) return make_cuda_device(options.device.ordinal);
  return make_simulator_device(options.simulator, options.simulated_target);
}

}  // namespace

struct Runtime::State {
  using KernelPointer = std::shared_ptr<const Kernel>;

  explicit State(const RuntimeOptions& options)
      : device(make_device(options)), cache(cache_options(options)) {}

  KernelPointer build(const AttentionSpec& spec, CacheResult& from) {
    require_valid(spec);
    Schedule schedule = choose_schedule(spec, device->target());
    Source source = emit(spec, schedule, device->target(), device->backend());
    auto executable = device->load(spec, schedule, source, cache, from);
    return std::make_shared<const LoadedKernel>(device, spec, schedule, std::move(source),
                                                std::move(executable));
  }

  KernelPointer find(const AttentionSpec& spec) {
    std::shared_lock lock(mutex);
    auto found = kernels.find(spec);
    return found == kernels.end() ? nullptr : found->second;
  }

  /// One thread builds, the others that ask meanwhile wait for it. A failure reaches them all and is
  /// forgotten.
  KernelPointer build_once(const AttentionSpec& spec, CacheResult& from) {
    std::promise<KernelPointer> promise;
    std::shared_future<KernelPointer> others;
    {
      std::unique_lock lock(mutex);
      if (auto found = kernels.find(spec); found != kernels.end()) {
        from = CacheResult::memory;
        return found->second;
      }
      if (auto found = in_flight.find(spec); found != in_flight.end())
        others = found->second;
      else
        in_flight.emplace(spec, promise.get_future().share());
    }
    if (others.valid()) {
      from = CacheResult::memory;
      return others.get();
    }
    try {
      KernelPointer kernel = build(spec, from);
      {
        std::unique_lock lock(mutex);
        kernels.emplace(spec, kernel);
        in_flight.erase(spec);
      }
      promise.set_value(kernel);
      return kernel;
    } catch (...) {
      {
        std::unique_lock lock(mutex);
        in_flight.erase(spec);
      }
      promise.set_exception(std::current_exception());
      throw;
    }
  }

  std::shared_ptr<Device> device;
  KernelCache cache;
  std::shared_mutex mutex;
  std::unordered_map<AttentionSpec, KernelPointer, SpecHash> kernels;
  std::unordered_map<AttentionSpec, std::shared_future<KernelPointer>, SpecHash> in_flight;
};

Runtime::Runtime(RuntimeOptions options) : state_(std::make_unique<State>(options)) {}
Runtime::~Runtime() = default;

bool Runtime::is_simulator() const {
  return state_->device->is_simulator();
}
const Target& Runtime::target() const {
  return state_->device->target();
}
std::string Runtime::device_name() const {
  return state_->device->name();
}
Device& Runtime::device() const {
  return *state_->device;
}
void Runtime::synchronize() {
  state_->device->synchronize();
}

std::shared_ptr<const Kernel> Runtime::kernel(const AttentionSpec& spec, CacheResult* from) {
  CacheResult result = CacheResult::memory;
  // The name is no part of what a kernel is.
  std::shared_ptr<const Kernel> kernel;
  if (spec.name.empty()) {
    kernel = state_->find(spec);
    if (!kernel) kernel = state_->build_once(spec, result);
  } else {
    AttentionSpec nameless = spec;
    nameless.name.clear();
    kernel = state_->find(nameless);
    if (!kernel) kernel = state_->build_once(nameless, result);
  }
  if (from) *from = result;
  return kernel;
}

void Runtime::prepare(std::span<const AttentionSpec> specs) {
  for (const auto& spec : specs) kernel(spec);
}

std::string_view version() {
  return TILEWRIGHT_VERSION;
}

}  // namespace tilewright
