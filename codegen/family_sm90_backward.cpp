// The backward pass of the sm90 family: a producer and two consumers, which own 64 keys each or, where the
// head dim is too wide for that, share 64 keys and split the columns of dK and dV.
#include <algorithm>

#include "codegen/backward_order.h"
#include "codegen/families.h"
#include "codegen/kernel_expressions.h"

namespace tilewright::sm90_backward {
namespace {

std::string text(int value) {
  return std::to_string(value);
}

int panels(int head_dim) {
  return (head_dim + 63) / 64;
}

constexpr int consumers = 2;

// Beside accumulators a consumer needs this many registers: 208 of accumulators fit into 240, 224 do not.
constexpr int other_registers = 32;

}  // namespace

bool splits_columns(const Schedule& schedule) {
  return schedule.block_n == 64;
}

// 65536 registers, 168 a thread of three warpgroups. Consumers that share their keys need fewer, and the
// producer spills at 24 where a tile has many panels.
int consumer_registers(const Schedule& schedule) {
  return splits_columns(schedule) ? 232 : 240;
}
int producer_registers(const Schedule& schedule) {
  return splits_columns(schedule) ? 40 : 24;
}

// Dropout's numbers do not fit beside the next scores at head dim 128, nor does the way to the bias's
// gradient at 256.
int default_order(const AttentionSpec& spec, const Schedule& schedule) {
  const int widest = std::max(spec.head_dim.qk, spec.head_dim.v);
  if (splits_columns(schedule))
    return order_number(spec.bias_gradient && widest > 192 ? "columns_plain" : "columns");
  const bool crowded = spec.dropout && widest > 64;
  return order_number(crowded ? "late_in_place" : "late");
}

// Half of the columns: whole panels, and half of the middle one if their number is odd.
int dv_columns(const AttentionSpec& spec, const Schedule& schedule) {
  return splits_columns(schedule) ? 32 * panels(spec.head_dim.v) : spec.head_dim.v;
}

int dk_columns(const AttentionSpec& spec, const Schedule& schedule) {
  return splits_columns(schedule) ? 32 * panels(spec.head_dim.qk) : spec.head_dim.qk;
}

int dq_columns(const AttentionSpec& spec, const Schedule& schedule) {
  const int qk = spec.head_dim.qk;
  if (splits_columns(schedule) || schedule.block_m == 128) return dk_columns(spec, schedule);
  // A share of columns must not begin within a panel and end in the next.
  return qk > 64 ? 64 : (qk + 15) / 16 * 8;
}

int dq_tile_floats(const AttentionSpec& spec, const Schedule& schedule) {
  return consumers * 64 * dq_columns(spec, schedule);
}

Resources resources(const AttentionSpec& spec, const Schedule& schedule, const Target&) {
  const int all_panels = panels(spec.head_dim.qk) + panels(spec.head_dim.v), m = schedule.block_m;
  const bool columns = splits_columns(schedule);
  Resources result;  // templates/sm90/backward_layout.cuh
  // Two buffers with a panel a consumer of dS, or one of P and one of dS; dQ on its way to the copy engine.
  result.shared_memory = 128 * all_panels * (schedule.block_n + schedule.stages * m) +
                         2 * consumers * 128 * m + (columns ? 0 : 4 * dq_tile_floats(spec, schedule)) +
                         schedule.stages * (8 * m + 32) + 96 + (spec.deterministic ? 16 : 0);
  const int sums = (dk_columns(spec, schedule) + dv_columns(spec, schedule)) / 2;
  const int dq = dq_columns(spec, schedule) / 2;
  // By keys: while dK and dQ are at work on dS and the next scores come in, or while probabilities and dP
  // become dS. By columns nothing but dQ is at work beside the sums, or scores and dP of half of the rows.
  result.accumulator_registers = sums + (columns ? std::max(dq, m / 2) : std::max(m / 2 + m / 4 + dq, m));
  result.blocks_per_sm = 1;
  return result;
}

std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule,
                                         const Target& target) {
  Refusals refusals;
  if (!target.wgmma) refusals.add("the sm90 family needs wgmma, which sm_90a alone has");
  if (spec.layout == Layout::packed)
    refusals.add("`layout: packed` has no backward kernel in the sm90 family yet; sm80 has");
  if (schedule.query_in_registers)
    refusals.add("blocks.query_in_registers is an axis of the sm80 family alone");
  if (schedule.block_n != 64 && schedule.block_n != 128)
    refusals.add("blocks.n is " + text(schedule.block_n) +
                 "; expected 128, 64 keys a consumer, or 64, which the consumers share");
  if (schedule.block_m != 64 && (schedule.block_m != 128 || splits_columns(schedule)))
    refusals.add("blocks.m is " + text(schedule.block_m) + "; expected 64, or 128 with blocks.n 128");
  if (schedule.warps != warps)
    refusals.add("blocks.warps is " + text(schedule.warps) + "; expected " + text(warps) +
                 ", 4 a consumer and 4 for the producer");
  refusals.in_range("stages", schedule.stages, 1, 4);
  if (schedule.pack_group != 1)
    refusals.add("blocks.pack_group is an axis of the sm90 family's forward pass alone");
  if (schedule.cluster != 1)
    refusals.add("blocks.cluster is an axis of the sm90 family's forward pass alone");
  if (schedule.ping_pong)
    refusals.add("blocks.ping_pong is an axis of the forward pass; turns are part of blocks.order here");
  if (schedule.order < 0) {
    refusals.add("blocks.order is missing");
    return refusals.take();
  }
  const BackwardOrder& order = backward_orders()[schedule.order];
  if (last_block_differs(order) && schedule.stages < 2)
    refusals.add("blocks.stages is 1; blocks.order " + std::string(order.name) +
                 " begins with the next rows before it leaves these, which takes 2");
  if (order.splits_columns != splits_columns(schedule))
    refusals.add("blocks.order " + std::string(order.name) + " is for blocks.n " +
                 text(order.splits_columns ? 64 : 128));
  if (!refusals.empty()) return refusals.take();
  const Resources need = sm90_backward::resources(spec, schedule, target);
  if (need.shared_memory > target.shared_memory_per_block)
    refusals.add("the tiles take " + text(need.shared_memory) + " bytes of shared memory and " +
                 std::string(target.name) + " has " + text(target.shared_memory_per_block) + " for a block");
  const int registers = consumer_registers(schedule);
  if (need.accumulator_registers > registers - other_registers)
    refusals.add("dK, dV, dQ, scores and dS take " + text(need.accumulator_registers) +
                 " registers a thread and " + text(registers - other_registers) + " of a consumer's " +
                 text(registers) + " can be had");
  return refusals.take();
}

// Measured on an H200, see backward_orders(); 128 query rows a block where the registers allow, at head dim
// 64 worth 20 to 25 %. With a score expression the derivative's registers would spill, as would the way to
// the bias's gradient beside 64 keys of more than 64 columns.
std::vector<Schedule> preferred(const AttentionSpec& spec, const Target&, const ShapeBucket&) {
  const int widest = std::max(spec.head_dim.qk, spec.head_dim.v);
  Schedule schedule{.family = Family::sm90,
                    .block_m = widest <= 64 && !kernel_expressions(spec).score && !spec.dropout ? 128 : 64,
                    .block_n = widest <= (spec.bias_gradient ? 64 : 128) ? 128 : 64,
                    .warps = warps,
                    .stages = 2};
  schedule.order = default_order(spec, schedule);
  return {schedule};
}

std::string reason(const AttentionSpec&, const Schedule& schedule, const Target&) {
  return (splits_columns(schedule)
              ? "two consumers that share 64 keys, since dK and dV of 64 each do not fit their registers"
              : "two consumers of 64 keys, the most whose dK and dV fit their registers") +
         std::string(", and blocks of ") + text(schedule.block_m) +
         " query rows, the most that fit beside them";
}

}  // namespace tilewright::sm90_backward
