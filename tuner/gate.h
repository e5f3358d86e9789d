// The gate before the clock: a candidate must be right before it is timed.
#pragma once

#include <string>
#include <vector>

#include "codegen/schedule.h"
#include "codegen/spec.h"
#include "runtime/device.h"
#include "runtime/reference.h"

namespace tilewright {

/// Why the tuner cannot make inputs for launches of a spec; empty: it can.
std::string no_inputs_because(const AttentionSpec& spec);

/// Bytes of one tensor, contiguous in the spec's layout.
struct InputTensor {
  DataType type;
  std::vector<int64_t> shape;
  std::vector<unsigned char> bytes;

  InputTensor(DataType type, std::vector<int64_t> shape);
  TensorView view(void* data = nullptr);
};

class Gate {
 public:
  /// Makes inputs of several shapes, with lengths that no tile divides and outliers, and their answers in
  /// fp64.
  explicit Gate(const AttentionSpec& spec);

  /// Runs a candidate on every shape, its outputs poisoned and between guard bytes. Empty: all are right;
  /// else what was wrong. Throws Error(device) if a launch fails.
  std::string refuse(Device& device, const Schedule& schedule, const Executable& executable);

 private:
  struct Case {
    LaunchShape shape;
    InputTensor q, k, v, sinks, out, lse;
    ForwardAnswers answers;
    bool with_sinks = false;
    ForwardArguments host();
  };
  Case make_case(const LaunchShape& shape, bool outliers, uint64_t seed);
  std::string refuse_case(Device& device, const Schedule& schedule, const Executable& executable, Case& one);

  AttentionSpec spec_;
  std::vector<Case> cases_;
};

}  // namespace tilewright
