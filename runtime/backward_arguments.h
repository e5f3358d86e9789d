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
};

/// Checks, plans and fills in. Allocates nothing. Throws Error(usage), also for a workspace that is too
/// small.
PreparedBackward prepare_backward(const AttentionSpec& spec, const Schedule& schedule,
                                  const BackwardArguments& arguments);

}  // namespace tilewright
