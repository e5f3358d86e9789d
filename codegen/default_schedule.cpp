// The default rule: a schedule for any spec and target without a measurement.
#include "codegen/backward_order.h"
#include "codegen/error.h"
#include "codegen/families.h"

namespace tilewright {
namespace {

std::string joined(const std::vector<std::string>& reasons) {
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : "; ") + reason;
  return text;
}

// In order of preference, of the family that the spec asks for or of all that the target has. Blocks given by
// hand are meant for every launch.
std::vector<Schedule> preferred(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket) {
  const ShapeBucket& meant = spec.blocks == BlockRequest{} ? bucket : long_bucket();
  std::vector<Schedule> list;
  for (Family family : {Family::sm90, Family::sm80}) {
    const FamilyRules* rules = family_rules(spec.pass, family);
    if (spec.blocks.family.value_or(family) != family) continue;
    if (family == Family::sm90 && !target.wgmma && !spec.blocks.family) continue;
    if (!rules) continue;
    for (const Schedule& schedule : rules->preferred(spec, target, meant)) list.push_back(schedule);
  }
  // A family without kernels for the pass: refused with that reason.
  if (list.empty()) list.push_back({.family = *spec.blocks.family});
  return list;
}

// What the spec's own `blocks` leave open comes from `base`.
Schedule merged(const BlockRequest& blocks, Schedule base, const AttentionSpec& spec = {}) {
  base.block_m = blocks.m.value_or(base.block_m);
  base.block_n = blocks.n.value_or(base.block_n);
  base.stages = blocks.stages.value_or(base.stages);
  const bool has_order = base.order >= 0 || blocks.order;  // sm90, backward
  if (has_order)
    base.order = blocks.order ? order_number(*blocks.order) : sm90_backward::default_order(spec, base);
  if (base.family == Family::sm90) base.warps = has_order ? sm90_backward::warps : 4 * (base.consumers() + 1);
  base.warps = blocks.warps.value_or(base.warps);
  base.query_in_registers = blocks.query_in_registers.value_or(base.query_in_registers);
  base.ping_pong = blocks.ping_pong.value_or(base.ping_pong && base.block_m > 64);
  base.pack_group = blocks.pack_group.value_or(blocks == BlockRequest{} ? base.pack_group : 1);
  base.cluster = blocks.cluster.value_or(blocks == BlockRequest{} ? base.cluster : 1);
  return base;
}

// The legal schedule of the same family that differs least from an illegal one, each axis counted in
// halvings.
Schedule nearest_legal(const AttentionSpec& spec, const Schedule& wanted, const Target& target) {
  Schedule best;
  int best_distance = INT32_MAX;
  const auto halvings = [](int a, int b) {
    int steps = 0;
    for (; a > b; a /= 2) ++steps;
    for (; b > a; b /= 2) ++steps;
    return steps;
  };
  const bool hopper = wanted.family == Family::sm90;
  const bool backward_hopper = hopper && spec.pass == Pass::backward;
  for (int m = 16; m <= 256; m *= 2)
    for (int n = 16; n <= 256; n *= 2)
      for (int stages = 1; stages <= 8; ++stages)
        for (int warps = hopper ? 4 * (m / 64 + 1) : 1; warps <= 16; warps *= 2)
          for (bool flag : {false, true}) {
            Schedule candidate{wanted.family, m, n, warps, stages, !hopper && flag, hopper && flag};
            if (backward_hopper) {
              candidate.warps = sm90_backward::warps;
              candidate.order = sm90_backward::default_order(spec, candidate);
            }
            if (!illegal_because(spec, candidate, target).empty()) continue;
            const int distance = 4 * halvings(m, wanted.block_m) + 4 * halvings(n, wanted.block_n) +
                                 3 * halvings(stages, wanted.stages) + 2 * halvings(warps, wanted.warps) +
                                 (flag != (hopper ? wanted.ping_pong : wanted.query_in_registers));
            if (distance < best_distance) best = candidate, best_distance = distance;
          }
  return best;
}

}  // namespace

Schedule choose_schedule(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket) {
  if (const auto reasons = unsupported_because(spec, target); !reasons.empty())
    throw Error(ErrorKind::spec,
                "no kernel for this spec on " + std::string(target.name) + ": " + joined(reasons));
  const std::vector<Schedule> candidates = preferred(spec, target, bucket);
  for (const Schedule& candidate : candidates) {
    const Schedule schedule = merged(spec.blocks, candidate, spec);
    if (illegal_because(spec, schedule, target).empty()) return schedule;
  }
  const Schedule wanted = merged(spec.blocks, candidates.front(), spec);
  const Schedule nearest = nearest_legal(spec, wanted, target);
  throw Error(ErrorKind::spec, "the schedule " + describe(wanted) + " does not fit " +
                                   std::string(target.name) + ": " +
                                   joined(illegal_because(spec, wanted, target)) +
                                   (nearest.block_m ? "; nearest that fits: " + describe(nearest) : ""));
}

BlockRequest request_for(const Schedule& schedule) {
  BlockRequest blocks{
      .family = schedule.family, .m = schedule.block_m, .n = schedule.block_n, .stages = schedule.stages};
  if (schedule.order >= 0) {
    blocks.order = order_name(schedule);
  } else if (schedule.family == Family::sm90) {
    blocks.ping_pong = schedule.ping_pong;
    if (schedule.pack_group > 1) blocks.pack_group = schedule.pack_group;
    if (schedule.cluster > 1) blocks.cluster = schedule.cluster;
  } else {
    blocks.warps = schedule.warps;
    blocks.query_in_registers = schedule.query_in_registers;
  }
  return blocks;
}

Schedule schedule_of(const BlockRequest& blocks) {
  const Schedule schedule = merged(blocks, Schedule{.family = blocks.family.value_or(Family::sm80)});
  if (request_for(schedule) == blocks) return schedule;
  throw Error(ErrorKind::spec, "the blocks " + canonical_form(blocks) +
                                   " leave something open; expected all of " +
                                   canonical_form(request_for(schedule)));
}

std::string schedule_reason(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  if (spec.blocks != BlockRequest{}) return "given by the spec's own blocks";
  std::string reason =
      "default rule: " + family_rules(spec.pass, schedule.family)->reason(spec, schedule, target);
  // Where the target has a faster family, what keeps it from serving.
  if (spec.pass == Pass::backward && schedule.family == Family::sm80 && target.wgmma)
    for (const Schedule& other : sm90_backward::preferred(spec, target, long_bucket()))
      reason += "; not sm90: " + joined(sm90_backward::illegal_because(spec, other, target));
  return reason;
}

}  // namespace tilewright
