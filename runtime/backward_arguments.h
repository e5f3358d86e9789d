// The backward pass's launch arguments: checked against the spec, then turned into what its kernels take.
#pragma once

#include "codegen/backward_plan.h"
#include "runtime/arguments.h"
#include "runtime/forward_parameters.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// What the forward pass was launched with.
ForwardArguments forward_part(const BackwardArguments& arguments);

/// The spec of the forward pass, LSE included, that a backward spec belongs to.
AttentionSpec forward_spec(const AttentionSpec& spec);

/// Throws Error(usage) unless the arguments fit the spec. The workspace is not looked at.
void check_arguments(const AttentionSpec& spec, const BackwardArguments& arguments);

struct PreparedBackward {
  BackwardPlan plan;
  BackwardParameters parameters;
  TensorMapRequest q_map, k_map, v_map, d_out_map;  // sm90, if there are tiles of keys
  PackedExpressions expressions;  // the kernels with expressions take them behind their parameters
};

/// The parameters of the sm90 family's main kernel, the maps as `encode` makes them of their requests.
template <typename Encode>
HopperBackwardParameters hopper_parameters(const PreparedBackward& launch, int* counters,
                                           const Encode& encode) {
  return {.q_map = encode(launch.q_map),
          .k_map = encode(launch.k_map),
          .v_map = encode(launch.v_map),
          .d_out_map = encode(launch.d_out_map),
          .backward = launch.parameters,
          .counters = counters};
}

/// Checks, plans and fills in. Allocates nothing. Throws Error(usage), also for a workspace that is too
/// small.
PreparedBackward prepare_backward(const AttentionSpec& spec, const Schedule& schedule,
                                  const BackwardArguments& arguments);

}  // namespace tilewright
