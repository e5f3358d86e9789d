// What a launch should take, by calculation alone: a rank for schedules nobody has measured, and a way to
// leave hopeless ones out of a search. Right to some ten percent at best; differences below that mean
// nothing.
#pragma once

#include <string_view>
#include <vector>

#include "codegen/io_model.h"
#include "codegen/launch_plan.h"
#include "codegen/schedule.h"
#include "codegen/spec.h"
#include "codegen/target.h"

namespace tilewright {

/// What of a GPU the time depends on. Rates are per multiprocessor and clock.
struct GpuFigures {
  int multiprocessors = 0;
  double gigahertz = 0;
  double l2_bytes = 0;
  double memory_bytes_per_second = 0;
  double mma_flops = 0;    // mma.sync, 16-bit operands, fp32 sums
  double wgmma_flops = 0;  // 0: there is none
  double exponentials = 16;
  double shared_bytes = 128;
  double l2_bytes_per_clock = 48;
};

/// The GPU that a target's data sheet is best known by. What is known of the GPU at hand should replace its
/// part.
GpuFigures typical_gpu(const Target& target);

/// Cycles of one multiprocessor for one tile of scores, by what does the work, and what follows from them.
struct CostEstimate {
  double tensor = 0;               // both matrix products
  double exponential = 0;          // the exponentials of the softmax, and of a soft cap
  double arithmetic = 0;           // the rest of the softmax
  double shared_memory = 0;        // operand reads and tile writes
  double l2 = 0;                   // K and V of the tile
  double tile = 0;                 // all of them together, as far as they overlap
  double waves = 0;                // tiles of query rows (backward: of keys) over the places for them
  double microseconds = 0;         // of the launch
  double memory_microseconds = 0;  // what device memory alone takes: a floor
  std::string_view bound;          // the largest part: "tensor cores", "exponentials", …
};
CostEstimate estimate_cost(const AttentionSpec& spec, const Schedule& schedule, const Target& target,
                           const GpuFigures& gpu, const LaunchShape& shape);
/// With model_io of these, which depends on the schedule's tile sizes alone.
CostEstimate estimate_cost(const AttentionSpec& spec, const Schedule& schedule, const Target& target,
                           const GpuFigures& gpu, const LaunchShape& shape, const IoModel& io);
/// Of `pass: backward`: its main kernel, with the traffic of those around it.
CostEstimate estimate_backward(const AttentionSpec& spec, const Schedule& schedule, const Target& target,
                               const GpuFigures& gpu, const LaunchShape& shape, const IoModel& io);
std::string_view largest_part(const CostEstimate& cost);

/// A schedule and its estimate.
struct RankedSchedule {
  Schedule schedule;
  CostEstimate cost;
};
/// The fastest first; equal ones stay in order.
std::vector<RankedSchedule> rank_schedules(const AttentionSpec& spec, const std::vector<Schedule>& schedules,
                                           const Target& target, const GpuFigures& gpu,
                                           const LaunchShape& shape);

/// Spearman's coefficient of two lists of figures for the same things: 1 for the same order, 0 for none in
/// common, -1 for the reverse. Equal figures share their rank. 0 for fewer than two.
double rank_correlation(const std::vector<double>& left, const std::vector<double>& right);

}  // namespace tilewright
