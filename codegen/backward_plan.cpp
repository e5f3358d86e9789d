#include "codegen/backward_plan.h"

#include <algorithm>

#include "codegen/error.h"
#include "codegen/families.h"
#include "codegen/kernel_expressions.h"
#include "codegen/look_up_tables.h"

namespace tilewright {
namespace {

constexpr int64_t limit = INT32_MAX;

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t aligned(int64_t bytes) {
  return divide_up(bytes, 256) * 256;
}

/// Blocks of a grid: tiles of all heads and batches. Three factors below 2^31 can pass 2^63.
int64_t blocks(int64_t tiles, int64_t heads, int64_t batch, const char* what) {
  const int64_t of_a_batch = tiles * heads;
  if (batch > 0 && of_a_batch > limit / batch)
    throw Error(ErrorKind::usage, "batch " + std::to_string(batch) + " times heads " + std::to_string(heads) +
                                      " times " + std::to_string(tiles) + " tiles of " + what +
                                      " is more than one launch's 2147483647 blocks");
  return of_a_batch * batch;
}

// Where tiles differ in length, those of many heads are computed together, the longest first: as many KV
// heads as have Q, dO and dQ in 40 MB of L2.
int64_t section_heads(const AttentionSpec& spec, const LaunchShape& shape) {
  constexpr int64_t budget = int64_t{40} << 20;
  // Deterministic blocks wait the less, the fewer of them share a head, as long as dQ stays in L2: with four
  // times the budget each hands on its turn so late that the pass takes 1.6 times as long.
  if (spec.mask.kind == Mask::Kind::none && !spec.deterministic) return 1;
  const int64_t row_bytes =
      (spec.head_dim.qk + spec.head_dim.v) * size_of(spec.dtype.q) + spec.head_dim.qk * int64_t{4};
  const int64_t head_bytes = shape.seqlen_q * row_bytes * spec.gqa_ratio;
  const int64_t kv_heads = std::max<int64_t>(1, shape.heads / spec.gqa_ratio * shape.batch);
  int64_t together = 1;
  while (2 * together * head_bytes <= budget && together < kv_heads) together *= 2;
  return std::min(together, kv_heads);
}

}  // namespace

int dq_tile_floats(const AttentionSpec& spec, const Schedule& schedule) {
  if (schedule.family == Family::sm90) return sm90_backward::dq_tile_floats(spec, schedule);
  return schedule.threads() * sm80_backward::warp_grids(spec, schedule).dq.registers();
}

// Each of the sm90 family's consumers adds to the sums by itself.
int turns_per_tile(const Schedule& schedule) {
  return schedule.family == Family::sm90 ? 2 : 1;
}

BackwardPlan plan_backward(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape) {
  for (int64_t length : {shape.batch, shape.heads, shape.seqlen_q, shape.seqlen_kv})
    if (length < 0 || length > limit - 1024)
      throw Error(ErrorKind::usage, "a batch, head count or sequence length of " + std::to_string(length) +
                                        " cannot be launched; expected 0 to " + std::to_string(limit - 1024));
  BackwardPlan plan;
  const bool packed = spec.layout == Layout::packed;
  const int64_t batch = packed ? 1 : shape.batch;
  // Layout packed: each sequence's last tile may be short, wherever they begin.
  const auto tiles = [&](int64_t rows, int64_t tile_rows) {
    if (!packed) return divide_up(rows, tile_rows);
    return rows == 0 || shape.batch == 0 ? 0 : rows / tile_rows + shape.batch;
  };
  plan.m_tiles = tiles(shape.seqlen_q, schedule.block_m);
  plan.n_tiles = tiles(shape.seqlen_kv, schedule.block_n);
  plan.query_blocks = blocks(plan.m_tiles, shape.heads, batch, "query rows");
  plan.key_blocks = blocks(plan.n_tiles, shape.heads / spec.gqa_ratio, batch, "keys");
  plan.finish_blocks = plan.query_blocks + (spec.sinks ? shape.heads : 0);
  if (plan.finish_blocks > limit)
    throw Error(ErrorKind::usage, std::to_string(plan.query_blocks) + " tiles of query rows and " +
                                      std::to_string(shape.heads) +
                                      " sinks are more than one launch's 2147483647 blocks");
  plan.section_heads = section_heads(spec, shape);
  // At most 2^31 tiles of at most 2^18 bytes: far from the end of 64 bits.
  const int64_t rows = plan.query_blocks * schedule.block_m;
  BackwardWorkspace& workspace = plan.workspace;
  workspace.lse_log2 = aligned(plan.query_blocks * dq_tile_floats(spec, schedule) * 4);
  workspace.row_terms = workspace.lse_log2 + aligned(rows * 4);
  workspace.turns = workspace.row_terms + aligned(rows * 4);
  workspace.sink_terms =
      workspace.turns +
      (spec.deterministic ? aligned((plan.query_blocks * turns_per_tile(schedule) + 1) * 4) : 0);
  workspace.row_ranges = workspace.sink_terms + (spec.sinks ? aligned(plan.query_blocks * 16) : 0);
  const KernelExpressions expressions = kernel_expressions(spec);
  const int64_t ranges = !expressions.mask                ? 0
                         : expressions.mask_knows_heads() ? plan.key_blocks
                                                          : plan.n_tiles;
  workspace.bytes = workspace.row_ranges + aligned(ranges * 16);
  return plan;
}

LaunchShape all_sequences(const AttentionSpec& spec, LaunchShape shape) {
  if (spec.layout != Layout::packed) return shape;
  for (int64_t* rows : {&shape.seqlen_q, &shape.seqlen_kv})
    if (__builtin_mul_overflow(*rows, shape.batch, rows)) *rows = INT64_MAX;  // refused as too long
  return shape;
}

int64_t workspace_size(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape) {
  if (spec.pass == Pass::backward) return plan_backward(spec, schedule, shape).workspace.bytes;
  return table_entries(look_up_tables(spec), schedule, shape) * table_entry_bytes;
}

}  // namespace tilewright
