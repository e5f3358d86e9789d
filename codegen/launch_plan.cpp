#include "codegen/launch_plan.h"

#include "codegen/error.h"

namespace tilewright {

LaunchPlan plan_launch(const AttentionSpec&, const Schedule& schedule, const LaunchShape& shape) {
  constexpr int64_t limit = INT32_MAX;
  for (int64_t length : {shape.batch, shape.heads, shape.seqlen_q, shape.seqlen_kv})
    if (length < 0 || length > limit - 1024)
      throw Error(ErrorKind::usage, "a batch, head count or sequence length of " + std::to_string(length) +
                                        " cannot be launched; expected 0 to " + std::to_string(limit - 1024));
  LaunchPlan plan;
  plan.m_tiles = (shape.seqlen_q + schedule.block_m - 1) / schedule.block_m;
  // Three factors below 2^31 can pass 2^63: compare before multiplying the last one.
  const int64_t tiles = plan.m_tiles * shape.heads;
  if (shape.batch > 0 && tiles > limit / shape.batch)
    throw Error(ErrorKind::usage, "batch " + std::to_string(shape.batch) + " times heads " + std::to_string(shape.heads) +
                                      " times " + std::to_string(plan.m_tiles) +
                                      " tiles of query rows is more than one launch's 2147483647 blocks");
  plan.grid = tiles * shape.batch;
  return plan;
}

}  // namespace tilewright
