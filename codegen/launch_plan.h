// A launch plan: what one launch needs for given shapes. Pure arithmetic.
#pragma once

#include <cstdint>

#include "codegen/schedule.h"
#include "codegen/spec.h"

namespace tilewright {

struct LaunchShape {
  int64_t batch = 0;
  int64_t heads = 0;  // query heads
  int64_t seqlen_q = 0;
  int64_t seqlen_kv = 0;
};

struct LaunchPlan {
  int64_t m_tiles = 0;      // tiles of query rows per head
  int64_t grid = 0;         // blocks, all in x (y and z stop at 65535); 0: nothing to do
};

/// Throws Error(usage) if the grid would pass 2^31 - 1 blocks or a length 2^31 - 1.
LaunchPlan plan_launch(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape);

}  // namespace tilewright
