#include "codegen/schedule.h"

#include <algorithm>

#include "codegen/backward_order.h"
#include "codegen/families.h"

namespace tilewright {

bool Refusals::in_range(const char* name, int value, int low, int high) {
  if (value >= low && value <= high) return true;
  add(std::string("blocks.") + name + " is " + std::to_string(value) + "; expected " + std::to_string(low) +
      " to " + std::to_string(high));
  return false;
}

const FamilyRules* family_rules(Pass pass, Family family) {
  static constexpr FamilyRules forward_sm80{sm80::resources, sm80::illegal_because, sm80::preferred,
                                            sm80::reason};
  static constexpr FamilyRules forward_sm90{sm90::resources, sm90::illegal_because, sm90::preferred,
                                            sm90::reason};
  static constexpr FamilyRules backward_sm80{sm80_backward::resources, sm80_backward::illegal_because,
                                             sm80_backward::preferred, sm80_backward::reason};
  static constexpr FamilyRules backward_sm90{sm90_backward::resources, sm90_backward::illegal_because,
                                             sm90_backward::preferred, sm90_backward::reason};
  if (pass == Pass::backward) return family == Family::sm80 ? &backward_sm80 : &backward_sm90;
  return family == Family::sm80 ? &forward_sm80 : &forward_sm90;
}

void refuse_unlike_list(Refusals& refusals, const AttentionSpec& spec, const Schedule& schedule) {
  if (!spec.mask.blocks) return;
  const auto check = [&](const char* axis, int list, int tile) {
    if (list % tile != 0)
      refusals.add(std::string("blocks.") + axis + " is " + std::to_string(tile) +
                   "; expected a divisor of mask.blocks." + axis + ", " + std::to_string(list));
  };
  check("m", spec.mask.blocks->m, schedule.block_m);
  check("n", spec.mask.blocks->n, schedule.block_n);
}

bool has_narrow_window(const AttentionSpec& spec) {
  constexpr int64_t narrow = 256;
  const Mask& mask = spec.mask;
  return mask.kind == Mask::Kind::window && mask.left < narrow && mask.right < narrow &&
         mask.left + mask.right < narrow;
}

bool tiny_blocks(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket) {
  return target.wgmma && (bucket.name == "few" || bucket.name == "rows") && has_narrow_window(spec) &&
         spec.blocks == BlockRequest{} && !spec.mask.blocks && spec.layout != Layout::packed &&
         std::max(spec.head_dim.qk, spec.head_dim.v) <= 64;
}

Resources resources(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  const FamilyRules* rules = family_rules(spec.pass, schedule.family);
  return rules ? rules->resources(spec, schedule, target) : Resources{};
}

std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule,
                                         const Target& target) {
  if (const FamilyRules* rules = family_rules(spec.pass, schedule.family))
    return rules->illegal_because(spec, schedule, target);
  return {"the " + std::string(name_of(schedule.family)) + " family has no kernel for `pass: " +
          std::string(name_of(spec.pass)) + "`; expected blocks.family sm80"};
}

/// Layout packed counts along q and kv within a sequence. A tensor that knows no sequence would be read in
/// another place than one with a number for each packed row has it.
void refuse_tensors_of_rows(const AttentionSpec& spec, Refusals& refusals) {
  const auto has = [](const TensorType& type, Dimension::Extent extent) {
    return std::any_of(type.dimensions.begin(), type.dimensions.end(),
                       [&](const Dimension& dimension) { return dimension.extent == extent; });
  };
  for (const auto& [name, type] : spec.declarations.tensors)
    if ((has(type, Dimension::Extent::q) || has(type, Dimension::Extent::kv)) &&
        !has(type, Dimension::Extent::batch))
      refusals.add("tensor " + name + ": " + to_text(type) +
                   " with `layout: packed` lacks a batch dimension; q and kv count within a sequence, and a "
                   "launch may give 1 along batch for what all sequences share");
}

std::vector<std::string> unsupported_because(const AttentionSpec& spec, const Target& target) {
  Refusals refusals;
  const auto refuse_key = [&](bool used, const char* key) {
    if (used) refusals.add(std::string("`") + key + "` has no kernel yet");
  };
  if (target.major < 8) refusals.add(std::string(target.name) + " is older than compute capability 8.0");
  if (spec.pass == Pass::decode) refusals.add("`pass: decode` has no kernel yet; forward and backward have");
  if (spec.layout == Layout::paged)
    refusals.add("`layout: paged` has no kernel yet; bshd, bhsd and packed have");
  if (spec.layout == Layout::packed && spec.mask.blocks)
    refusals.add("`mask.blocks` with `layout: packed` has no kernel yet; with bshd and bhsd it has");
  if (spec.dtype.q != spec.dtype.kv || spec.dtype.q != spec.dtype.out ||
      (spec.dtype.q != DataType::fp16 && spec.dtype.q != DataType::bf16))
    refusals.add("`dtype` {q: " + std::string(name_of(spec.dtype.q)) + ", kv: " +
                 std::string(name_of(spec.dtype.kv)) + ", out: " + std::string(name_of(spec.dtype.out)) +
                 "} has no kernel yet; fp16 and bf16 throughout have");
  if (spec.head_dim.qk > 256 || spec.head_dim.v > 256)
    refusals.add("head_dim {qk: " + std::to_string(spec.head_dim.qk) + ", v: " +
                 std::to_string(spec.head_dim.v) + "} has no kernel yet; multiples of 8 up to 256 have");
  const auto forward_alone = [&](bool used, const char* key) {
    if (used && spec.pass != Pass::forward)
      refusals.add("`" + std::string(key) + "` has no " + std::string(name_of(spec.pass)) +
                   " kernel yet; forward has");
  };
  if (spec.layout == Layout::packed) refuse_tensors_of_rows(spec, refusals);
  forward_alone(spec.mask.blocks.has_value(), "mask.blocks");
  if (spec.bias_gradient && spec.layout == Layout::packed)
    refusals.add("`bias_gradient` has no kernel with `layout: packed` yet");
  refuse_key(spec.rope != Rope::none, "rope");
  return refusals.take();
}

const Schedule& BucketSchedules::at(const LaunchShape& shape) const {
  return by_bucket.at(index_of(bucket_of(shape)));
}

std::vector<Schedule> BucketSchedules::distinct() const {
  std::vector<Schedule> schedules;
  for (const Schedule& schedule : by_bucket)
    if (std::find(schedules.begin(), schedules.end(), schedule) == schedules.end())
      schedules.push_back(schedule);
  return schedules;
}

BucketSchedules bucket_schedules(const AttentionSpec& spec, const Target& target) {
  BucketSchedules schedules;
  for (const ShapeBucket& bucket : shape_buckets())
    schedules.by_bucket.push_back(choose_schedule(spec, target, bucket));
  return schedules;
}

Schedule schedule_for(const AttentionSpec& spec, const Target& target, const LaunchShape& shape) {
  return choose_schedule(spec, target, bucket_of(shape));
}

std::string_view order_name(const Schedule& schedule) {
  return schedule.order < 0 ? "" : backward_orders()[schedule.order].name;
}

std::string describe(const Schedule& schedule) {
  return std::string(name_of(schedule.family)) + ", m " + std::to_string(schedule.block_m) + ", n " +
         std::to_string(schedule.block_n) + ", warps " + std::to_string(schedule.warps) + ", stages " +
         std::to_string(schedule.stages) + (schedule.query_in_registers ? ", query in registers" : "") +
         (schedule.ping_pong ? ", ping-pong" : "") +
         (schedule.pack_group > 1 ? ", groups of " + std::to_string(schedule.pack_group) + " heads" : "") +
         (schedule.cluster > 1 ? ", clusters of " + std::to_string(schedule.cluster) : "") +
         (schedule.order >= 0 ? ", order " + std::string(order_name(schedule)) : "");
}

}  // namespace tilewright
