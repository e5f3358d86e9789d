// Launch arguments: checked against the spec, then turned into what the kernel takes.
#pragma once

#include <cstdint>

#include "codegen/launch_plan.h"
#include "codegen/schedule.h"
#include "runtime/forward_parameters.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// The strides that count: the view's, or those of a contiguous tensor in the spec's layout. `strides` has
/// room for the view's rank.
void effective_strides(const AttentionSpec& spec, const TensorView& view, int64_t* strides);

/// Bytes from the view's data to the end of its last element; 0 if it has no elements.
int64_t span_bytes(const TensorView& view, const int64_t* strides);

/// Throws Error(usage) that names tensor, dimension, value and what was expected, unless the arguments fit
/// the spec.
void check_arguments(const AttentionSpec& spec, const ForwardArguments& arguments);

struct PreparedLaunch {
  LaunchPlan plan;
  ForwardParameters parameters;
};

/// Checks, plans and fills in. Allocates nothing.
PreparedLaunch prepare_launch(const AttentionSpec& spec, const Schedule& schedule,
                              const ForwardArguments& arguments);

}  // namespace tilewright
