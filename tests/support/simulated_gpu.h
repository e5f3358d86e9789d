// A GPU and a compiler for the tuner's tests: every schedule compiles, and its true time is known.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/simulated_clock.h"
#include "tuner/tuner.h"

namespace tilewright::test {

inline const Target& hopper() {
  return target_by_name("sm_90a");
}
/// Times by the model, except where a test says otherwise; 1 % noise.
class SimulatedGpu final : public Bench {
 public:
  using Times = std::function<double(const Schedule&, double predicted)>;
  using Refusal = std::function<std::string(const Schedule&)>;
  SimulatedGpu(const AttentionSpec& spec, std::vector<Schedule> schedules, Times times, Refusal refusal,
               uint64_t seed)
      : spec_(spec),
        schedules_(std::move(schedules)),
        times_(std::move(times)),
        refusal_(std::move(refusal)),
        seed_(seed) {}

  std::string refuse(int candidate) override { return refusal_ ? refusal_(schedules_[candidate]) : ""; }
  void use_shape(const LaunchShape& shape) override {
    std::vector<double> times;
    for (const Schedule& schedule : schedules_)
      times.push_back(times_(
          schedule, estimate_cost(spec_, schedule, hopper(), typical_gpu(hopper()), shape).microseconds));
    clock_.emplace(times, 0.01, ++seed_);
  }
  std::vector<Sample> round(const std::vector<int>& order) override { return clock_->round(order); }

 private:
  AttentionSpec spec_;
  std::vector<Schedule> schedules_;
  Times times_;
  Refusal refusal_;
  uint64_t seed_;
  std::optional<SimulatedClock> clock_;
};

inline TuneParts parts_of(const AttentionSpec& spec, SimulatedGpu::Times times,
                          SimulatedGpu::Refusal refusal = {}, uint64_t seed = 1) {
  TuneParts parts;
  parts.compile = [](const std::vector<Schedule>& schedules, const std::function<void(size_t)>& done) {
    for (size_t i = 0; i < schedules.size(); ++i) done(i);
    return std::vector<CompileOutcome>(schedules.size());
  };
  parts.bench = [=](const std::vector<Schedule>& schedules) -> BenchFactory {
    return [=] { return std::make_unique<SimulatedGpu>(spec, schedules, times, refusal, seed); };
  };
  return parts;
}

}  // namespace tilewright::test
