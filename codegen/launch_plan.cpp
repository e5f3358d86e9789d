#include "codegen/launch_plan.h"

#include <algorithm>

#include "codegen/error.h"

namespace tilewright {
namespace {

// Under a mask that lets tiles differ in length, tiles of many heads are computed together, the longest
// first: as many heads as have their K and V in half of L2 (50 to 60 MB on Hopper). Otherwise a head at a
// time keeps its K and V closest.
int64_t section_heads(const AttentionSpec& spec, const LaunchShape& shape) {
  constexpr int64_t budget = int64_t{32} << 20;
  const int64_t head_bytes = shape.seqlen_kv * (spec.head_dim.qk + spec.head_dim.v) * size_of(spec.dtype.kv);
  const bool even = spec.mask.kind == Mask::Kind::none && spec.head_dim.v > 64;  // at 64, 3 % the other way
  int64_t kv_heads = 1;
  while (!even && 2 * kv_heads * head_bytes <= budget && kv_heads < shape.heads * shape.batch) kv_heads *= 2;
  return std::min(kv_heads * spec.gqa_ratio, shape.heads * shape.batch);
}

constexpr int64_t limit = INT32_MAX;

void check_sizes(const LaunchShape& shape) {
  for (int64_t length : {shape.batch, shape.heads, shape.seqlen_q, shape.seqlen_kv})
    if (length < 0 || length > limit - 1024)
      throw Error(ErrorKind::usage, "a batch, head count or sequence length of " + std::to_string(length) +
                                        " cannot be launched; expected 0 to " + std::to_string(limit - 1024));
}

}  // namespace

LaunchPlan plan_launch(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape) {
  check_sizes(shape);
  LaunchPlan plan;
  const int64_t rows = int64_t{schedule.positions()} * schedule.cluster;
  plan.m_tiles = (shape.seqlen_q + rows - 1) / rows;
  // Three factors below 2^31 can pass 2^63: compare before multiplying the last one.
  const int64_t tiles = plan.m_tiles * (shape.heads / schedule.pack_group);
  if (shape.batch > 0 && tiles > limit / schedule.cluster / shape.batch)
    throw Error(ErrorKind::usage, "batch " + std::to_string(shape.batch) + " times heads " +
                                      std::to_string(shape.heads) + " times " + std::to_string(plan.m_tiles) +
                                      " tiles of query rows is more than one launch's 2147483647 blocks");
  plan.tiles = tiles * shape.batch;
  if (schedule.family == Family::sm90 && plan.tiles > 0)
    plan.section_heads = std::max<int64_t>(1, section_heads(spec, shape) / schedule.pack_group);
  return plan;
}

LaunchPlan plan_packed_launch(const Schedule& schedule, const LaunchShape& shape) {
  check_sizes(shape);
  LaunchPlan plan;
  if (shape.batch == 0 || shape.seqlen_q == 0) return plan;
  plan.m_tiles = shape.seqlen_q / schedule.block_m + shape.batch;  // each sequence's last tile may be short
  plan.tiles = plan.m_tiles * shape.heads;
  if (plan.m_tiles > limit || plan.tiles > limit)
    throw Error(ErrorKind::usage, std::to_string(shape.batch) + " sequences of " +
                                      std::to_string(shape.seqlen_q) + " query rows together, times heads " +
                                      std::to_string(shape.heads) +
                                      ", are more tiles than one launch's 2147483647 blocks");
  return plan;
}

}  // namespace tilewright
