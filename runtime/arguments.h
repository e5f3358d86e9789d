// Launch arguments: checked against the spec, then turned into what the kernel takes.
#pragma once

#include <cstdint>

#include "codegen/launch_plan.h"
#include "codegen/schedule.h"
#include "runtime/expression_arguments.h"
#include "runtime/expression_tables.h"
#include "runtime/forward_parameters.h"
#include "runtime/include/tilewright/tilewright.hpp"
#include "runtime/tensor_map.h"

namespace tilewright {

/// The strides that count: the view's, or those of a contiguous tensor in the spec's layout. `strides` has
/// room for the view's rank.
void effective_strides(const AttentionSpec& spec, const TensorView& view, int64_t* strides);

/// Bytes from the view's data to the end of its last element; 0 if it has no elements.
int64_t span_bytes(const TensorView& view, const int64_t* strides);

/// Throws Error(usage) that names tensor, dimension, value and what was expected, unless the arguments fit
/// the spec.
void check_arguments(const AttentionSpec& spec, const ForwardArguments& arguments);

/// fp32, [batch, heads, seqlen_q] of q, contiguous: LSE and its gradient.
void check_rows(const char* name, const TensorView& rows, const TensorView& q);

/// fp32, [heads] of q, contiguous: the gradient of sinks.
void check_heads(const char* name, const TensorView& heads, const TensorView& q);

/// Type and shape of `like`, and memory that a kernel can use.
void check_like(const AttentionSpec& spec, const char* name, const TensorView& view, const char* like_name,
                const TensorView& like, bool output);

TensorParameters tensor_parameters(const AttentionSpec& spec, const TensorView& view);

/// `parameters` are what a kernel of the sm80 family takes; with the maps they make up what the sm90 family
/// takes.
struct PreparedLaunch {
  LaunchPlan plan;
  ForwardParameters parameters;
  TensorMapRequest q_map, k_map, v_map;  // sm90, if there are tiles
  PackedExpressions expressions;         // a kernel with expressions takes them behind its parameters
  PreparedTables tables;                 // of the mask's look-ups
};

/// What a launch's schedule depends on. Arguments of a wrong rank, which prepare_launch refuses, give an
/// empty one.
LaunchShape launch_shape(const ForwardArguments& arguments);

/// Checks, plans and fills in. Allocates nothing.
PreparedLaunch prepare_launch(const AttentionSpec& spec, const Schedule& schedule,
                              const ForwardArguments& arguments);

/// The sm90 family's parameters, the maps as `encode` makes them of their requests.
template <typename Encode>
HopperForwardParameters hopper_parameters(const PreparedLaunch& launch, int* counters, const Encode& encode) {
  return {.q_map = encode(launch.q_map),
          .k_map = encode(launch.k_map),
          .v_map = encode(launch.v_map),
          .tiles = static_cast<int>(launch.plan.tiles),
          .section_heads = static_cast<int>(launch.plan.section_heads),
          .counters = counters,
          .forward = launch.parameters};
}

}  // namespace tilewright
