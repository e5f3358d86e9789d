// The gate before the clock: a candidate must be right before it is timed.
#pragma once

#include <string>
#include <vector>

#include "codegen/schedule.h"
#include "codegen/spec.h"
#include "runtime/device.h"
#include "runtime/reference.h"
#include "runtime/reference_backward.h"
#include "tuner/launch_inputs.h"

namespace tilewright {

class Gate {
 public:
  /// Makes inputs of several shapes, with lengths that no tile divides and outliers, and their answers in
  /// fp64.
  explicit Gate(const AttentionSpec& spec);

  /// Runs a candidate on every shape, its outputs poisoned and between guard bytes: the output and LSE, or
  /// dQ, dK and dV, from a workspace that is poisoned too. Empty: all are right; else what was wrong. Throws
  /// Error(device) if a launch fails.
  std::string refuse(Device& device, const Schedule& schedule, const Executable& executable);

 private:
  struct Case {
    LaunchShape shape;
    LaunchInputs inputs;
    ForwardAnswers forward;
    BackwardAnswers backward;
  };
  void add_case(const LaunchShape& shape, bool outliers, uint64_t seed);
  std::string refuse_case(Device& device, const Schedule& schedule, const Executable& executable, Case& one);

  AttentionSpec spec_;
  std::vector<Case> cases_;
};

}  // namespace tilewright
