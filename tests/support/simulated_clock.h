// A GPU's clock that is none: known times, with what real ones have around them.
#pragma once

#include <functional>
#include <map>
#include <random>
#include <vector>

#include "tuner/selection.h"

namespace tilewright::test {

class SimulatedClock final : public Stopwatch {
 public:
  /// `microseconds`: the true times of the candidates.
  SimulatedClock(std::vector<double> microseconds, double noise, uint64_t seed)
      : true_(std::move(microseconds)), noise_(noise), random_(seed) {}

  std::vector<Sample> round(const std::vector<int>& order) override {
    std::vector<Sample> samples;
    const bool throttled = throttled_at && throttled_at(launches);
    for (int candidate : order) {
      ++launches;
      ++count[candidate];
      if (const auto failing = failures.find(candidate);
          failing != failures.end() && count[candidate] >= failing->second.second) {
        samples.push_back({.failure = failing->second.first});
        continue;
      }
      std::normal_distribution<double> normal;
      double time = true_[candidate] * (1 + noise_ * normal(random_));
      if (drift) time *= drift(launches);
      if (throttled) time *= 1.5;
      if (outliers > 0 && std::uniform_real_distribution<double>()(random_) < outliers) time *= 3;
      seconds_ += time * 1e-6 + 50e-6;
      samples.push_back({.microseconds = time, .throttled = throttled});
    }
    return samples;
  }
  double seconds() override { return seconds_; }

  std::function<double(int launch)> drift;              // a factor on every time
  std::function<bool(int launch)> throttled_at;         // slower by half, and known to be
  double outliers = 0;                                  // share of launches that take three times as long
  std::map<int, std::pair<std::string, int>> failures;  // candidate: why, and from which of its launches on
  int launches = 0;
  std::map<int, int> count;  // launches of each candidate

 private:
  std::vector<double> true_;
  double noise_;
  std::mt19937_64 random_;
  double seconds_ = 0;
};

}  // namespace tilewright::test
