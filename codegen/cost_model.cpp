#include "codegen/cost_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "codegen/cost_model_parts.h"
#include "codegen/error.h"
#include "codegen/kernel_expressions.h"

namespace tilewright {
namespace {

using namespace cost;

// Data sheets; mma.sync reaches 62 % of Hopper's tensor cores (Luo et al., "Benchmarking and Dissecting the
// Nvidia Hopper GPU Architecture", 2024), and what it reaches on Blackwell's is taken to be Ampere's.
struct Figures {
  std::string_view target;
  GpuFigures gpu;
};
constexpr double mib = 1 << 20;
constexpr Figures figures[] = {
    {"sm_80", {108, 1.41, 40 * mib, 2.0e12, 2048, 0}},         // A100
    {"sm_86", {84, 1.74, 6 * mib, 0.70e12, 1024, 0}},          // A40
    {"sm_87", {16, 1.30, 4 * mib, 0.20e12, 2048, 0}},          // Orin
    {"sm_89", {142, 2.52, 96 * mib, 0.86e12, 1024, 0}},        // L40S
    {"sm_90a", {132, 1.75, 50 * mib, 4.8e12, 2560, 4096}},     // H200
    {"sm_100a", {148, 1.90, 126 * mib, 8.0e12, 2048, 0, 16}},  // B200
    {"sm_103a", {148, 1.90, 126 * mib, 8.0e12, 2048, 0, 32}},  // B300
    {"sm_120a", {188, 2.40, 128 * mib, 1.8e12, 1024, 0}},      // RTX PRO 6000
    {"sm_121a", {48, 2.40, 24 * mib, 0.27e12, 1024, 0}},       // GB10
};

// fp32 instructions a score beside the exponential: scale and subtract, maximum, sum, conversion, moves.
constexpr double softmax_instructions = 5;
// Fixed costs of a tile of query rows: Q, the first keys, the output's way out.
constexpr double row_tile_cycles = 2500;
// ptxas spills when these and the accumulators pass 255 registers.
constexpr int other_registers = 60;

void add_tile_costs(const AttentionSpec& spec, const Schedule& schedule, const GpuFigures& gpu,
                    double masked_share, CostEstimate& cost) {
  const bool hopper = schedule.family == Family::sm90;
  const double qk = round_up(spec.head_dim.qk, 16), v = round_up(spec.head_dim.v, 16);
  const double m = schedule.block_m, n = schedule.block_n, scores = m * n;
  const double element = size_of(spec.dtype.kv), key_bytes = n * (qk + v) * element;
  // wgmma and mma.sync reach four fifths and two thirds of their rate in products as short as these.
  const double rate = hopper ? 0.8 * gpu.wgmma_flops : 0.67 * gpu.mma_flops;
  cost.tensor = 2 * scores * (qk + v) / rate;
  const bool capped = kernel_expressions(spec).softcap != 0;
  cost.exponential = scores * (capped ? 2 : 1) / gpu.exponentials;
  const double instructions = softmax_instructions + (capped ? 6 : 0) + 4 * masked_share;
  cost.arithmetic = scores * instructions / 128;
  // Each warp (sm80) or consumer (sm90) reads all keys and values of a tile for its own rows.
  const double readers = hopper ? schedule.consumers() : schedule.warps;
  const double query_bytes = schedule.query_in_registers ? 0 : m * qk * element;
  cost.shared_memory = (readers * key_bytes + query_bytes + key_bytes) / gpu.shared_bytes;
  cost.l2 = key_bytes / gpu.l2_bytes_per_clock;
}

// How many independent streams of work keep the units of a multiprocessor busy: four warps make one.
double streams(const Schedule& schedule, int blocks_per_sm) {
  if (schedule.family == Family::sm90) return blocks_per_sm * schedule.consumers();
  return std::max(1.0, blocks_per_sm * schedule.warps / 4.0);
}

void add_tile_time(const Schedule& schedule, const Resources& need, CostEstimate& cost) {
  const bool hopper = schedule.family == Family::sm90;
  const double concurrent = streams(schedule, need.blocks_per_sm);
  // Softmax has the same lanes as the exponentials.
  const double softmax = cost.exponential + cost.arithmetic;
  const double in_turn = (cost.tensor + softmax) / concurrent + tile_latency / concurrent * (hopper ? 2 : 1);
  double tile = overlapped({cost.tensor, softmax, cost.shared_memory, cost.l2, in_turn});
  // With one stage K and V take turns, so that a part of a tile's time is there to hide a copy; each further
  // stage adds a whole one.
  const double hidden = (schedule.stages - 0.6) * tile * need.blocks_per_sm;
  tile += std::max(0.0, copy_latency - hidden) / need.blocks_per_sm;
  if (hopper && schedule.consumers() > 1 && !schedule.ping_pong) tile *= 1.03;
  // Clusters load half as much, but their blocks wait for each other: no gain measured, 1 % lost at head dim
  // 128.
  if (schedule.cluster > 1) tile *= 1.01;
  if (schedule.pack_group > 1) tile *= 1.01;  // pays off by fewer tiles of rows, or not at all
  const int spilled = hopper ? 0 : std::max(0, need.accumulator_registers + other_registers - 255);
  cost.tile = tile * (1 + 0.02 * spilled);
}

std::vector<double> ranks(const std::vector<double>& figures) {
  std::vector<size_t> order(figures.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return figures[a] < figures[b]; });
  std::vector<double> result(figures.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && figures[order[end]] == figures[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) result[order[i]] = static_cast<double>(begin + end - 1) / 2;
  }
  return result;
}

}  // namespace

std::string_view largest_part(const CostEstimate& cost) {
  const std::pair<double, std::string_view> parts[] = {{cost.tensor, "tensor cores"},
                                                       {cost.exponential + cost.arithmetic, "softmax"},
                                                       {cost.shared_memory, "shared memory"},
                                                       {cost.l2, "L2"}};
  return std::max_element(std::begin(parts), std::end(parts))->second;
}

GpuFigures typical_gpu(const Target& target) {
  for (const Figures& row : figures)
    if (row.target == target.name) return row.gpu;
  throw Error(ErrorKind::internal, "no figures for " + std::string(target.name));
}

CostEstimate estimate_cost(const AttentionSpec& spec, const Schedule& schedule, const Target& target,
                           const GpuFigures& gpu, const LaunchShape& shape) {
  return estimate_cost(spec, schedule, target, gpu, shape, model_io(spec, schedule, shape));
}

CostEstimate estimate_cost(const AttentionSpec& spec, const Schedule& schedule, const Target& target,
                           const GpuFigures& gpu, const LaunchShape& shape, const IoModel& io) {
  if (spec.pass == Pass::backward) return estimate_backward(spec, schedule, target, gpu, shape, io);
  const Resources need = resources(spec, schedule, target);
  const double heads =
      static_cast<double>(shape.batch) * static_cast<double>(shape.heads) / schedule.pack_group;
  const double row_tiles =
      std::ceil(static_cast<double>(shape.seqlen_q) / schedule.positions()) * std::max(heads, 0.0);
  const double visits = static_cast<double>(io.tiles.visited) * heads;
  CostEstimate cost;
  if (row_tiles == 0) return cost;
  const double masked_share =
      io.tiles.visited ? static_cast<double>(io.tiles.masked) / static_cast<double>(io.tiles.visited) : 0;
  add_tile_costs(spec, schedule, gpu, masked_share, cost);
  add_tile_time(schedule, need, cost);
  cost.bound = largest_part(cost);

  // Work spreads over the multiprocessors up to the last wave, of which half is waste on average. A wave with
  // fewer tiles than places leaves units idle.
  const double places = static_cast<double>(gpu.multiprocessors) * need.blocks_per_sm;
  cost.waves = row_tiles / places;
  const double row_tile = visits / row_tiles * cost.tile + row_tile_cycles / need.blocks_per_sm;
  const bool even = io.tiles.skipped == 0;
  const double rounds = even ? std::max(cost.waves, std::ceil(cost.waves) - 0.25) : cost.waves + 0.5;
  const double cycles = std::max(1.0, rounds) * row_tile * need.blocks_per_sm;
  cost.memory_microseconds = io.traffic.tiled_least() / gpu.memory_bytes_per_second * 1e6;
  cost.microseconds = overlapped({cycles / (gpu.gigahertz * 1e3), cost.memory_microseconds});
  if (cost.memory_microseconds > cycles / (gpu.gigahertz * 1e3)) cost.bound = "device memory";
  return cost;
}

std::vector<RankedSchedule> rank_schedules(const AttentionSpec& spec, const std::vector<Schedule>& schedules,
                                           const Target& target, const GpuFigures& gpu,
                                           const LaunchShape& shape) {
  std::vector<RankedSchedule> ranked;
  for (const Schedule& schedule : schedules)
    ranked.push_back({schedule, estimate_cost(spec, schedule, target, gpu, shape)});
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedSchedule& a, const RankedSchedule& b) {
    return a.cost.microseconds < b.cost.microseconds;
  });
  return ranked;
}

double rank_correlation(const std::vector<double>& left, const std::vector<double>& right) {
  if (left.size() != right.size() || left.size() < 2) return 0;
  const std::vector<double> a = ranks(left), b = ranks(right);
  const double middle = static_cast<double>(left.size() - 1) / 2;
  double product = 0, squares_a = 0, squares_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += (a[i] - middle) * (b[i] - middle);
    squares_a += (a[i] - middle) * (a[i] - middle);
    squares_b += (b[i] - middle) * (b[i] - middle);
  }
  return squares_a == 0 || squares_b == 0 ? 0 : product / std::sqrt(squares_a * squares_b);
}

}  // namespace tilewright
