// A launch plan: what one launch needs for given shapes. Pure arithmetic.
#pragma once

#include <cstdint>

#include "codegen/schedule.h"
#include "codegen/shape_bucket.h"
#include "codegen/spec.h"

namespace tilewright {

struct LaunchPlan {
  int64_t m_tiles = 0;  // tiles of query rows per head; those of a cluster's blocks count as one
  int64_t tiles = 0;    // of all heads and batches; blocks (clusters) of a launch in which each computes one;
                        // 0: nothing to do
  int64_t section_heads =
      1;  // sm90: heads (groups of them) whose tiles are computed together, because their K and V fit L2 together
};

/// Throws Error(usage) if the tiles would pass 2^31 - 1 or a length 2^31 - 1. All blocks go into x of the
/// grid (y and z stop at 65535).
LaunchPlan plan_launch(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape);

/// Layout packed: `shape` holds the number of sequences, and the rows of all of them together. Lengths are on
/// the device, so tiles are as many as could be needed; those that are not do nothing.
LaunchPlan plan_packed_launch(const Schedule& schedule, const LaunchShape& shape);

}  // namespace tilewright
