#include <algorithm>

#include "codegen/families.h"
#include "codegen/kernel_expressions.h"

namespace tilewright::sm80_backward {
namespace {

int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::string text(int value) {
  return std::to_string(value);
}

// Registers beside gradients and scores: addresses, operand fragments, what a row brings. Read off compiler
// reports.
constexpr int other_registers = 48;

// The grid that leaves a warp the least work, and of those the one whose warps read the fewest fragments of
// the operands: shared memory feeds the tensor cores at about their own speed, so it decides.
WarpGrid best_grid(int rows, int columns, int warps) {
  WarpGrid best;
  int best_work = INT32_MAX, best_reads = INT32_MAX;
  for (int r = 1; r <= warps; ++r) {
    if (warps % r != 0 || rows / 16 % r != 0) continue;
    WarpGrid grid{r, warps / r, rows / 16 / r, (columns / 16 + warps / r - 1) / (warps / r)};
    const int work = grid.row_fragments * grid.column_fragments;
    const int reads = grid.row_fragments + grid.column_fragments;
    if (work > best_work || (work == best_work && reads >= best_reads)) continue;
    best = grid, best_work = work, best_reads = reads;
  }
  return best;
}

int peak_registers(const AttentionSpec& spec, const WarpGrids& grids) {
  const int scores = grids.scores.registers() * (kernel_expressions(spec).has_slope() ? 3 : 2);
  return grids.dv.registers() + grids.dk.registers() + std::max(scores, grids.dq.registers());
}

}  // namespace

WarpGrids warp_grids(const AttentionSpec& spec, const Schedule& schedule) {
  const int qk = round_up(spec.head_dim.qk, 16), v = round_up(spec.head_dim.v, 16);
  const WarpGrids grids{best_grid(schedule.block_m, schedule.block_n, schedule.warps),
                        best_grid(schedule.block_n, v, schedule.warps),
                        best_grid(schedule.block_n, qk, schedule.warps),
                        best_grid(schedule.block_m, qk, schedule.warps)};
  // The scores' columns are written by one warp each, so they divide evenly too.
  if (!grids.scores.rows || grids.scores.columns * grids.scores.column_fragments * 16 != schedule.block_n)
    return {};
  return grids;
}

Resources resources(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  Resources result;
  const int qk = round_up(spec.head_dim.qk, 16) * 2, v = round_up(spec.head_dim.v, 16) * 2;
  result.shared_memory = (schedule.block_n + schedule.stages * schedule.block_m) * (qk + v) +
                         2 * schedule.block_m * schedule.block_n * 2;  // P and dS
  if (spec.layout == Layout::packed) result.shared_memory += 32;  // templates/sm80/backward_place_packed.cuh
  result.accumulator_registers = peak_registers(spec, warp_grids(spec, schedule));
  const int registers = std::min(255, round_up(result.accumulator_registers + other_registers, 8));
  const int by_registers = target.registers_per_sm / (registers * schedule.threads());
  const int by_memory = target.shared_memory_per_sm / (result.shared_memory + 1024);
  const int by_warps = target.max_warps_per_sm / schedule.warps;
  result.blocks_per_sm = std::max(1, std::min({by_registers, by_memory, by_warps, target.max_blocks_per_sm}));
  return result;
}

std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule,
                                         const Target& target) {
  Refusals refusals;
  bool sizes = refusals.in_range("m", schedule.block_m, 16, 128);
  sizes = refusals.in_range("n", schedule.block_n, 16, 128) && sizes;
  sizes = refusals.in_range("warps", schedule.warps, 1, 16) && sizes;
  sizes = refusals.in_range("stages", schedule.stages, 1, 2) && sizes;
  if (schedule.order >= 0) refusals.add("blocks.order is an axis of the sm90 family's backward pass alone");
  if (schedule.pack_group != 1)
    refusals.add("blocks.pack_group is an axis of the sm90 family's forward pass alone");
  if (schedule.cluster != 1)
    refusals.add("blocks.cluster is an axis of the sm90 family's forward pass alone");
  if (schedule.ping_pong) refusals.add("blocks.ping_pong is an axis of the sm90 family's forward pass alone");
  if (schedule.query_in_registers)
    refusals.add("blocks.query_in_registers is an axis of the sm80 family's forward pass alone");
  if (!sizes) return refusals.take();
  for (const auto& [name, value] : {std::pair{"m", schedule.block_m}, {"n", schedule.block_n}})
    if (value % 16 != 0)
      refusals.add(std::string("blocks.") + name + " is " + text(value) + "; expected a multiple of 16");
  if ((schedule.warps & (schedule.warps - 1)) != 0)
    refusals.add("blocks.warps is " + text(schedule.warps) + "; expected a power of two");
  if (!refusals.empty()) return refusals.take();
  if (warp_grids(spec, schedule).scores.rows == 0) {
    refusals.add(text(schedule.warps) + " warps cannot share a tile of " + text(schedule.block_m) +
                 " queries by " + text(schedule.block_n) +
                 " keys in fragments of 16 by 16; give fewer warps or a larger tile");
    return refusals.take();
  }
  const Resources need = sm80_backward::resources(spec, schedule, target);
  if (need.shared_memory > target.shared_memory_per_block)
    refusals.add("the tiles take " + text(need.shared_memory) + " bytes of shared memory and " +
                 std::string(target.name) + " has " + text(target.shared_memory_per_block) + " for a block");
  if (need.accumulator_registers > 215)
    refusals.add("dK, dV, scores and their gradients take " + text(need.accumulator_registers) +
                 " registers a thread and 215 of the 255 can be had; give more warps or a smaller tile");
  return refusals.take();
}

// Large tiles of keys first: the more keys a block owns, the fewer blocks add to dQ.
std::vector<Schedule> preferred(const AttentionSpec& spec, const Target&, const ShapeBucket&) {
  const auto schedule = [](int m, int n, int warps, int stages) {
    return Schedule{Family::sm80, m, n, warps, stages};
  };
  std::vector<Schedule> list;
  const int widest = std::max(spec.head_dim.qk, spec.head_dim.v);
  // Dropout's numbers take registers too: what is fastest without them spills.
  if (widest <= 64 && !spec.dropout) list.push_back(schedule(128, 128, 8, 2));
  if (widest <= 64) list.push_back(schedule(64, 128, 8, 2));
  if (widest <= 128 && !spec.dropout) list.push_back(schedule(64, 128, 8, 2));
  if (widest <= 128 || !spec.dropout) list.push_back(schedule(64, 64, 8, 2));
  if (widest <= 128 || !spec.dropout) list.push_back(schedule(64, 64, 8, 1));
  if (spec.dropout) list.push_back(schedule(64, 32, 8, 1));
  list.push_back(schedule(32, 64, 8, 1));
  list.push_back(schedule(32, 32, 4, 1));
  return list;
}

std::string reason(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  return "the first tiles of the family's list whose dK and dV of " + text(spec.head_dim.qk) + " and " +
         text(spec.head_dim.v) + " columns fit the registers of " + text(schedule.warps) +
         " warps and whose tiles fit " + text(target.shared_memory_per_block) + " bytes of shared memory; " +
         text(sm80_backward::resources(spec, schedule, target).blocks_per_sm) + " blocks per SM";
}

}  // namespace tilewright::sm80_backward
