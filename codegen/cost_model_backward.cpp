// The estimate of a backward pass's main kernel; what the kernels around it move is the same for every
// schedule.
#include <algorithm>

#include "codegen/cost_model.h"
#include "codegen/cost_model_parts.h"
#include "codegen/families.h"
#include "codegen/kernel_expressions.h"

namespace tilewright {
namespace {

using namespace cost;

// fp32 instructions a score: scale and subtract, dP minus the row's term, times P, two conversions, and two
// more of moves.
constexpr double instructions_a_score = 8;
// Fixed costs of a tile of keys: K and V, dK and dV on their way out.
constexpr double key_tile_cycles = 5000;

/// Bytes that warps read of both operands of a product over `depth`, each for its own share of the result.
double operand_bytes(const sm80_backward::WarpGrid& grid, double depth) {
  return grid.rows * grid.columns * 16.0 * (grid.row_fragments + grid.column_fragments) * depth * 2;
}

double sm80_shared_bytes(const AttentionSpec& spec, const Schedule& schedule, double qk, double v) {
  const sm80_backward::WarpGrids grids = sm80_backward::warp_grids(spec, schedule);
  const double m = schedule.block_m, n = schedule.block_n;
  return operand_bytes(grids.scores, qk) + operand_bytes(grids.scores, v) + operand_bytes(grids.dv, m) +
         operand_bytes(grids.dk, m) + operand_bytes(grids.dq, n) + 2 * m * n * 2;
}

/// A consumer reads both operands of a product from shared memory, P of dV's apart.
double sm90_shared_bytes(const Schedule& schedule, double qk, double v) {
  const double m = schedule.block_m, n = schedule.block_n, consumers = 2;
  const double of_keys = n * (qk + v) * 2, of_rows = consumers * m * (2 * qk + 2 * v) * 2;
  return of_keys + of_rows + 3 * m * n * 2 + m * qk * 4 * 2;
}

}  // namespace

CostEstimate estimate_backward(const AttentionSpec& spec, const Schedule& schedule, const Target& target,
                               const GpuFigures& gpu, const LaunchShape& shape, const IoModel& io) {
  const bool hopper = schedule.family == Family::sm90;
  const Resources need = resources(spec, schedule, target);
  const double heads = static_cast<double>(shape.batch) * static_cast<double>(shape.heads);
  const double key_tiles = std::ceil(static_cast<double>(shape.seqlen_kv) / schedule.block_n) *
                           std::max(heads / spec.gqa_ratio, 0.0);
  CostEstimate cost;
  if (key_tiles == 0) return cost;
  const double qk = round_up(spec.head_dim.qk, 16), v = round_up(spec.head_dim.v, 16);
  const double m = schedule.block_m, n = schedule.block_n, scores = m * n;
  const double rate = hopper ? 0.7 * gpu.wgmma_flops : 0.6 * gpu.mma_flops;
  cost.tensor = 2 * scores * (3 * qk + 2 * v) / rate;
  const bool capped = kernel_expressions(spec).softcap != 0;
  cost.exponential = scores * (capped ? 2 : 1) / gpu.exponentials;
  cost.arithmetic = scores * (instructions_a_score + (capped ? 10 : 0)) / 128;
  const double row_bytes = m * (qk + v) * 2, dq_bytes = m * qk * 4;
  cost.shared_memory =
      (row_bytes + (hopper ? sm90_shared_bytes(schedule, qk, v) : sm80_shared_bytes(spec, schedule, qk, v))) /
      gpu.shared_bytes;
  // A sum in L2 reads and writes.
  cost.l2 = (row_bytes + 2 * dq_bytes) / gpu.l2_bytes_per_clock;
  const double blocks = need.blocks_per_sm;
  const double streams = hopper ? 2 * blocks : std::max(1.0, blocks * schedule.warps / 4.0);
  const double softmax = cost.exponential + cost.arithmetic;
  // Scores must be there before gradients of them can be: half of a tile's products wait for its softmax.
  const double in_turn = (cost.tensor / 2 + softmax + tile_latency) / streams + cost.tensor / 2;
  cost.tile = overlapped({cost.tensor, softmax, cost.shared_memory, cost.l2, in_turn});
  const double hidden = (schedule.stages - 0.6) * cost.tile * blocks;
  cost.tile += std::max(0.0, copy_latency - hidden) / blocks;
  cost.bound = largest_part(cost);

  const double places = static_cast<double>(gpu.multiprocessors) * blocks;
  cost.waves = key_tiles / places;
  const double visits = static_cast<double>(io.tiles.visited) * heads;
  const double key_tile = visits / key_tiles * cost.tile + key_tile_cycles / blocks;
  const double rounds =
      io.tiles.skipped == 0 ? std::max(cost.waves, std::ceil(cost.waves) - 0.25) : cost.waves + 0.5;
  const double cycles = std::max(1.0, rounds) * key_tile * blocks;
  // Q, K, V and the output's gradient are read, the gradients written; sums of dQ are made 0, and rounded.
  const double bytes =
      2 * (io.traffic.queries + io.traffic.keys_once + io.traffic.output) + 3 * 2 * io.traffic.queries;
  cost.memory_microseconds = bytes / gpu.memory_bytes_per_second * 1e6;
  cost.microseconds = overlapped({cycles / (gpu.gigahertz * 1e3), cost.memory_microseconds});
  if (cost.memory_microseconds > cycles / (gpu.gigahertz * 1e3)) cost.bound = "device memory";
  return cost;
}

}  // namespace tilewright
