#include <algorithm>
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
  /// `executables`: one for each of the distinct schedules, in their order.
  LoadedKernel(std::shared_ptr<Device> device, AttentionSpec spec, const BucketSchedules& schedules,
               std::vector<KernelVariant> variants, std::vector<std::unique_ptr<Executable>> executables)
      : device_(std::move(device)),
        spec_(std::move(spec)),
        variants_(std::move(variants)),
        executables_(std::move(executables)) {
    for (size_t bucket = 0; bucket < schedules.by_bucket.size(); ++bucket) {
      size_t variant = 0;
      while (variants_[variant].schedule != schedules.by_bucket[bucket]) ++variant;
      variants_[variant].buckets.push_back(shape_buckets()[bucket].name);
      of_bucket_.push_back(variant);
    }
    for (size_t i = 0; i < variants_.size(); ++i) variants_[i].report = executables_[i]->report();
  }

  const AttentionSpec& spec() const override { return spec_; }
  const Target& target() const override { return device_->target(); }
  std::span<const KernelVariant> variants() const override { return variants_; }
  const KernelVariant& variant_for(const LaunchShape& shape) const override {
    return variants_[index_for(shape)];
  }

  void launch(Stream stream, const ForwardArguments& arguments, const LaunchOptions& options) const override {
    const size_t index = variants_.size() == 1 ? 0 : index_for(launch_shape(arguments));
    const PreparedLaunch launch = prepare_launch(spec_, variants_[index].schedule, arguments);
    if (launch.plan.tiles > 0) executables_[index]->launch(stream, launch, arguments, options);
  }

  void launch_backward(Stream stream, const BackwardArguments& arguments) const override {
    const size_t index = variants_.size() == 1 ? 0 : index_for(launch_shape(forward_part(arguments)));
    const PreparedBackward launch = prepare_backward(spec_, variants_[index].schedule, arguments);
    if (launch.plan.finish_blocks > 0 || launch.plan.key_blocks > 0)
      executables_[index]->launch(stream, launch, arguments);
  }

 private:
  const KernelVariant& long_variant() const override { return variants_[of_bucket_.back()]; }
  size_t index_for(const LaunchShape& shape) const { return of_bucket_[index_of(bucket_of(shape))]; }

  std::shared_ptr<Device> device_;
  AttentionSpec spec_;
  std::vector<KernelVariant> variants_;
  std::vector<std::unique_ptr<Executable>> executables_;
  std::vector<size_t> of_bucket_;  // which variant serves a bucket
};

/// A cheap hash over what usually differs; equality compares everything.
struct SpecHash {
  size_t operator()(const AttentionSpec& spec) const {
    uint64_t hash = 0;
    auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29; };
    mix(static_cast<uint64_t>(spec.pass));
    mix(spec.head_dim.qk);
    mix(spec.head_dim.v);
    mix(static_cast<uint64_t>(spec.dtype.q));
    mix(spec.gqa_ratio);
    mix(static_cast<uint64_t>(spec.mask.kind));
    mix(spec.mask.left);
    mix(spec.mask.right);
    mix(static_cast<uint64_t>(spec.layout));
    mix(spec.lse);
    mix(spec.score ? spec.score->size() : 0);
    mix(spec.mask.expression ? spec.mask.expression->size() : 0);
    mix(spec.blocks.m.value_or(0));
    mix(spec.blocks.n.value_or(0));
    return hash;
  }
};

/// The name is no part of what a kernel is.
AttentionSpec nameless(AttentionSpec spec) {
  spec.name.clear();
  return spec;
}

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

  explicit State(const RuntimeOptions& runtime_options)
      : options(runtime_options), device(make_device(options)), cache(cache_options(options)) {}

  struct Built {
    KernelVariant variant;
    std::unique_ptr<Executable> executable;
    CacheResult from = CacheResult::memory;
  };

  Built build_variant(const AttentionSpec& spec, const Schedule& schedule) {
    Built built;
    built.variant.schedule = schedule;
    built.variant.source = emit(spec, schedule, device->target(), device->backend());
    built.executable = device->load(spec, schedule, built.variant.source, cache, built.from);
    return built;
  }

  BucketSchedules choose_schedules(const AttentionSpec& spec) {
    std::call_once(records_read, [&] {
      gpu = device->gpu_model();
      if (gpu) records = usable_records(options);
    });
    // The simulator, and GPUs that the target table does not know.
    if (!gpu) return bucket_schedules(spec, device->target());
    return tuned_schedules(spec, device->target(), &*gpu, records);
  }

  /// The variants are made side by side, so that several cost little more time than one.
  KernelPointer build(const AttentionSpec& spec, CacheResult& from) {
    require_valid(spec);
    const BucketSchedules schedules = choose_schedules(spec);
    const std::vector<Schedule> distinct = schedules.distinct();
    std::vector<std::future<Built>> others;
    for (size_t i = 1; i < distinct.size(); ++i)
      others.push_back(std::async(std::launch::async, [&, i] { return build_variant(spec, distinct[i]); }));
    std::vector<KernelVariant> variants;
    std::vector<std::unique_ptr<Executable>> executables;
    const auto add = [&](Built built) {
      variants.push_back(std::move(built.variant));
      executables.push_back(std::move(built.executable));
      from = std::max(from, built.from);
    };
    from = CacheResult::memory;
    add(build_variant(spec, distinct[0]));
    for (std::future<Built>& other : others) add(other.get());
    return std::make_shared<const LoadedKernel>(device, spec, schedules, std::move(variants),
                                                std::move(executables));
  }

  KernelPointer find(const AttentionSpec& spec) {
    if (!spec.name.empty()) return find(nameless(spec));
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

  const RuntimeOptions options;
  std::shared_ptr<Device> device;
  KernelCache cache;
  std::once_flag records_read;
  std::optional<GpuModel> gpu;  // nothing: records are not for the device
  TuningRecords records;
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
  std::shared_ptr<const Kernel> kernel = state_->find(spec);
  if (!kernel) kernel = state_->build_once(nameless(spec), result);
  if (from) *from = result;
  return kernel;
}

std::shared_ptr<const Kernel> Runtime::prepared_kernel(const AttentionSpec& spec) const {
  if (auto kernel = state_->find(spec)) return kernel;
  throw Error(
      ErrorKind::usage,
      "not prepared: the kernel of this spec has to be compiled or loaded, which cannot be done while a "
      "stream is captured; ask for it, or prepare it, beforehand. The spec:\n" +
          canonical_form(spec));
}

void Runtime::prepare(std::span<const AttentionSpec> specs) {
  std::exception_ptr first;
  ErrorKind kind = ErrorKind::internal;
  std::string failures;
  size_t failed = 0;
  for (const AttentionSpec& spec : specs) {
    try {
      kernel(spec);
    } catch (const Error& error) {
      if (!first) first = std::current_exception(), kind = error.kind();
      failures += "\n" + (spec.name.empty() ? std::string("a spec") : spec.name) + ": " + error.what();
      ++failed;
    }
  }
  if (failed == 0) return;
  if (specs.size() == 1) std::rethrow_exception(first);
  throw Error(kind, std::to_string(failed) + " of " + std::to_string(specs.size()) +
                        " specs have no kernel:" + failures);
}

std::string_view version() {
  return TILEWRIGHT_VERSION;
}

}  // namespace tilewright
