#include "codegen/model_choice.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "codegen/cost_model.h"
#include "codegen/families.h"
#include "codegen/kernel_expressions.h"
#include "codegen/timing_shape.h"

namespace tilewright {
namespace {

// The model ranks; what it says of two schedules is right to about this.
constexpr double sure = 0.1;

// Accumulators a thread that leave ptxas enough: with more it spills for some head dims and targets. The
// schedules of the default rules were all compiled for every target.
constexpr int calm_registers = 160, expression_registers = 24;

void add_once(std::vector<Schedule>& list, const Schedule& schedule) {
  if (std::find(list.begin(), list.end(), schedule) == list.end()) list.push_back(schedule);
}

std::vector<Schedule> candidates_of(const AttentionSpec& spec, const Target& target,
                                    const ShapeBucket& bucket) {
  const Family family = choose_schedule(spec, target, bucket).family;
  std::vector<Schedule> list;
  const auto add = [&](const Schedule& schedule) {
    if (illegal_because(spec, schedule, target).empty()) add_once(list, schedule);
  };
  for (const ShapeBucket& other : shape_buckets())
    for (const Schedule& schedule : family_rules(spec.pass, family)->preferred(spec, target, other))
      add(schedule);
  if (spec.pass != Pass::forward || family != Family::sm80) return list;
  const int most = calm_registers - (kernel_expressions(spec).any() ? expression_registers : 0);
  for (const auto& [m, warps] : {std::pair{32, 2}, {64, 4}, {128, 4}, {128, 8}})
    for (int n : {32, 64, 128})
      for (int stages : {1, 2, 3})
        for (bool in_registers : {false, true}) {
          const Schedule schedule{family, m, n, warps, stages, in_registers};
          if (resources(spec, schedule, target).accumulator_registers <= most) add(schedule);
        }
  return list;
}

/// Estimates of many schedules for one shape. The tiles of equal sizes are counted once.
class Estimates {
 public:
  Estimates(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket)
      : spec_(spec), target_(target), gpu_(typical_gpu(target)), shape_(timing_shape(spec, bucket)) {
    // Masks as expressions are looked at tile by tile: at a quarter of the lengths, a sixteenth of the tiles.
    if (kernel_expressions(spec).mask && shape_.seqlen_q > 2048) shape_.seqlen_q = shape_.seqlen_kv = 2048;
  }
  CostEstimate of(const Schedule& schedule) {
    const std::pair size{schedule.block_m, schedule.block_n};
    auto found = tiles_.find(size);
    if (found == tiles_.end()) found = tiles_.emplace(size, model_io(spec_, schedule, shape_)).first;
    return estimate_cost(spec_, schedule, target_, gpu_, shape_, found->second);
  }
  const LaunchShape& shape() const { return shape_; }

 private:
  const AttentionSpec& spec_;
  const Target& target_;
  GpuFigures gpu_;
  LaunchShape shape_;
  std::map<std::pair<int, int>, IoModel> tiles_;
};

std::string microseconds_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f us", value);
  return text;
}

std::string reason_text(const Target& target, const ShapeBucket& bucket, const LaunchShape& shape,
                        const CostEstimate& best, const Schedule& usual, const CostEstimate& usual_cost,
                        bool same) {
  const std::string shape_text = "batch " + std::to_string(shape.batch) + ", " + std::to_string(shape.heads) +
                                 " heads and " + std::to_string(shape.seqlen_q) + " queries";
  return "model: nobody measured " + std::string(target.generation) + "; by calculation a launch with " +
         shape_text + " (bucket " + std::string(bucket.name) + ") takes " +
         microseconds_text(best.microseconds) + ", bound by " + std::string(best.bound) + ", " +
         (same ? "and nothing else is sure to be faster than this, the default rule's schedule"
               : "and " + microseconds_text(usual_cost.microseconds) + " with the default rule's schedule, " +
                     describe(usual));
}

}  // namespace

bool rule_is_measured(const Target& target) {
  return target.name == "sm_90a";
}

std::optional<ModelChoice> model_choice(const AttentionSpec& spec, const Target& target,
                                        const ShapeBucket& bucket) {
  if (spec.blocks != BlockRequest{} || rule_is_measured(target)) return std::nullopt;
  const Schedule usual = choose_schedule(spec, target, bucket);
  Estimates estimates(spec, target, bucket);
  const CostEstimate usual_cost = estimates.of(usual);
  if (usual_cost.microseconds <= 0) return std::nullopt;
  // Where a launch starts from: long ones from the default rule's schedule, others from that of long ones,
  // since a kernel more has to be worth its compile.
  const bool is_long = bucket.name == long_bucket().name;
  const Schedule start = is_long ? usual : model_choice(spec, target, long_bucket())->schedule;
  const CostEstimate start_cost = estimates.of(start);
  Schedule best = start;
  CostEstimate best_cost = start_cost;
  for (const Schedule& schedule : candidates_of(spec, target, bucket)) {
    const CostEstimate cost = estimates.of(schedule);
    if (cost.microseconds < best_cost.microseconds) best = schedule, best_cost = cost;
  }
  if (best_cost.microseconds * (1 + sure) > start_cost.microseconds) best = start, best_cost = start_cost;
  return ModelChoice{
      best, reason_text(target, bucket, estimates.shape(), best_cost, usual, usual_cost, best == usual)};
}

Schedule untuned_schedule(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket) {
  const auto choice = model_choice(spec, target, bucket);
  return choice ? choice->schedule : choose_schedule(spec, target, bucket);
}

}  // namespace tilewright
