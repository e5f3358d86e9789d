// The default rule: a schedule for any spec and target without a measurement.
#include <algorithm>

#include "codegen/error.h"
#include "codegen/schedule.h"

namespace tilewright {
namespace {

std::string joined(const std::vector<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
  return text;
}

// In order of preference; the first that is legal is taken. Measured on an H200 against FlashAttention-2 over head dims
// 64, 128, 256, lengths 1k to 16k (bench/results): 32 rows a warp halve the shared-memory traffic of 16 and fit the
// registers up to 128 output columns; beyond, two small blocks per SM overlap better than one large one.
std::vector<Schedule> preferred(const AttentionSpec& spec, const Target& target) {
  const auto sm80 = [](int m, int n, int warps, int stages, bool query_in_registers = false) {
    return Schedule{Family::sm80, m, n, warps, stages, query_in_registers};
  };
  std::vector<Schedule> list;
  if (std::max(spec.head_dim.qk, spec.head_dim.v) <= 64) list.push_back(sm80(128, 64, 4, 2, true));
  // Beside 64 keys ptxas spills up to 56 bytes for 104 to 120 columns, and for Blackwell targets at 128 too.
  if (spec.head_dim.v > 96 && spec.head_dim.v <= 128 && (spec.head_dim.v < 128 || target.major >= 10))
    list.push_back(sm80(128, 32, 4, 1));
  if (spec.head_dim.v <= 128) list.push_back(sm80(128, 64, 4, 1));
  list.push_back(sm80(64, 64, 4, 1));
  list.push_back(sm80(64, 32, 4, 1));
  list.push_back(sm80(64, 16, 4, 1));
  return list;
}

// What the spec's own `blocks` leave open comes from `base`.
Schedule merged(const BlockRequest& blocks, Schedule base) {
  base.family = blocks.family.value_or(base.family);
  base.ping_pong = blocks.ping_pong.value_or(base.ping_pong);
  base.block_m = blocks.m.value_or(base.block_m);
  base.block_n = blocks.n.value_or(base.block_n);
  base.stages = blocks.stages.value_or(base.stages);
  base.warps = blocks.warps.value_or(base.warps);
  base.query_in_registers = blocks.query_in_registers.value_or(base.query_in_registers);
  return base;
}

// The legal schedule that differs least from an illegal one, each axis counted in halvings.
Schedule nearest_legal(const AttentionSpec& spec, const Schedule& wanted, const Target& target) {
  Schedule best;
  int best_distance = INT32_MAX;
  const auto halvings = [](int a, int b) {
    int steps = 0;
    for (; a > b; a /= 2) ++steps;
    for (; b > a; b /= 2) ++steps;
    return steps;
  };
  for (int m = 16; m <= 256; m *= 2)
    for (int n = 16; n <= 256; n *= 2)
      for (int stages = 1; stages <= 8; ++stages)
        for (int warps = 1; warps <= 16; warps *= 2)
          for (bool held : {false, true}) {
            const Schedule candidate{wanted.family, m, n, warps, stages, held};
            if (!illegal_because(spec, candidate, target).empty()) continue;
            const int distance = 4 * halvings(m, wanted.block_m) + 4 * halvings(n, wanted.block_n) +
                                 3 * halvings(stages, wanted.stages) + 2 * halvings(warps, wanted.warps) +
                                 (held != wanted.query_in_registers);
            if (distance < best_distance) best = candidate, best_distance = distance;
          }
  return best;
}

}  // namespace

Schedule choose_schedule(const AttentionSpec& spec, const Target& target) {
  if (const auto reasons = unsupported_because(spec, target); !reasons.empty())
    throw Error(ErrorKind::spec, "no kernel for this spec on " + std::string(target.name) + ": " + joined(reasons));
  const std::vector<Schedule> candidates = preferred(spec, target);
  for (const Schedule& candidate : candidates) {
    const Schedule schedule = merged(spec.blocks, candidate);
    if (illegal_because(spec, schedule, target).empty()) return schedule;
  }
  const Schedule wanted = merged(spec.blocks, candidates.front());
  throw Error(ErrorKind::spec, "the schedule " + describe(wanted) + " does not fit " + std::string(target.name) + ": " +
                                   joined(illegal_because(spec, wanted, target)) + "; nearest that fits: " +
                                   describe(nearest_legal(spec, wanted, target)));
}

std::string schedule_reason(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  if (spec.blocks != BlockRequest{}) return "given by the spec's own blocks";
  const Resources need = resources(spec, schedule, target);
  return "default rule: " + std::to_string(schedule.block_m / schedule.warps) +
         " rows a warp, the most whose output of " + std::to_string(spec.head_dim.v) +
         " columns fits the registers, and the first tiles of the family's list that fit " +
         std::to_string(target.shared_memory_per_block) + " bytes of shared memory; " + std::to_string(need.blocks_per_sm) +
         " blocks per SM";
}

std::string describe(const Schedule& schedule) {
  return "m " + std::to_string(schedule.block_m) + ", n " + std::to_string(schedule.block_n) + ", warps " +
         std::to_string(schedule.warps) + ", stages " + std::to_string(schedule.stages) +
         (schedule.query_in_registers ? ", query in registers" : "");
}

}  // namespace tilewright
