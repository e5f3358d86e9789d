// What runs candidates: a GPU, or in tests something that pretends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/launch_plan.h"
#include "tuner/selection.h"

namespace tilewright {

/// Numbers name candidates, as in select_fastest.
class Bench {
 public:
  virtual ~Bench() = default;
  /// Loads a candidate and compares it with the reference. Empty: it is right; else why it must not be timed.
  virtual std::string refuse(int candidate) = 0;
  /// What later rounds launch.
  virtual void use_shape(const LaunchShape& shape) = 0;
  /// One launch of each, cold caches. A launch that fails throws.
  virtual std::vector<Sample> round(const std::vector<int>& order) = 0;
};
using BenchFactory = std::function<std::unique_ptr<Bench>()>;

}  // namespace tilewright
