#include "codegen/schedule_space.h"

#include <numeric>

#include "codegen/backward_order.h"
#include "codegen/families.h"

namespace tilewright {
namespace {

void set_m(Schedule& schedule, int value) {
  schedule.block_m = value;
}
void set_n(Schedule& schedule, int value) {
  schedule.block_n = value;
}
void set_warps(Schedule& schedule, int value) {
  schedule.warps = value;
}
void set_stages(Schedule& schedule, int value) {
  schedule.stages = value;
}
void set_query_in_registers(Schedule& schedule, int value) {
  schedule.query_in_registers = value != 0;
}
void set_ping_pong(Schedule& schedule, int value) {
  schedule.ping_pong = value != 0;
}
void set_pack_group(Schedule& schedule, int value) {
  schedule.pack_group = value;
}
void set_cluster(Schedule& schedule, int value) {
  schedule.cluster = value;
}
void set_consumers_m(Schedule& schedule, int value) {
  schedule.block_m = value;
  schedule.warps = 4 * (schedule.consumers() + 1);
}

// Tiles that are no power of two pay off where a head dim is none, or where the last bytes of shared memory
// count.
const ScheduleAxis sm80_axes[] = {
    {"m", "query rows of a tile", {16, 32, 64, 96, 128, 192, 256}, set_m},
    {"n", "keys of a tile", {16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256}, set_n},
    {"warps", "warps of a block; each owns m / warps rows", {1, 2, 4, 8}, set_warps},
    {"stages", "pairs of K and V tiles in shared memory; 1: K and V take turns", {1, 2, 3, 4}, set_stages},
    {"query_in_registers", "Q fragments are read once", {0, 1}, set_query_in_registers},
};

void set_order(Schedule& schedule, int value) {
  schedule.order = value;
  schedule.warps = sm90_backward::warps;
}

const ScheduleAxis sm90_axes[] = {
    {"m", "query rows of a tile; a consumer warpgroup for each 64", {64, 128, 192, 256}, set_consumers_m},
    {"n", "keys of a tile", {32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256}, set_n},
    {"stages", "pairs of K and V tiles in shared memory", {1, 2, 3, 4, 5}, set_stages},
    {"ping_pong", "consumers take turns on the tensor cores", {0, 1}, set_ping_pong},
    {"pack_group",
     "query heads of one KV head in the rows of a tile",
     {1, 2, 4, 8, 16, 32, 64},
     set_pack_group},
    {"cluster", "blocks that share their tiles of keys", {1, 2}, set_cluster},
};

void add(const AttentionSpec& spec, const Target& target, const Schedule& schedule, ScheduleSpace& space) {
  ++space.points;
  const std::vector<std::string> reasons = illegal_because(spec, schedule, target);
  if (reasons.empty()) {
    space.legal.push_back(schedule);
    return;
  }
  RefusedPoints& refused = space.refused[reason_class(reasons.front())];
  if (refused.count++ == 0) {
    refused.example = describe(schedule) + ":";
    for (const std::string& reason : reasons) refused.example += " " + reason + ";";
    refused.example.pop_back();
  }
}

void enumerate(const AttentionSpec& spec, const Target& target, std::span<const ScheduleAxis> axes,
               Schedule schedule, ScheduleSpace& space) {
  if (axes.empty()) return add(spec, target, schedule, space);
  for (int value : axes.front().values) {
    axes.front().set(schedule, value);
    enumerate(spec, target, axes.subspan(1), schedule, space);
  }
}

}  // namespace

std::span<const ScheduleAxis> schedule_axes(Pass pass, Family family) {
  if (family == Family::sm80) return sm80_axes;
  if (pass != Pass::backward) return sm90_axes;
  static const std::vector<ScheduleAxis> sm90_backward_axes = [] {
    std::vector<int> orders(backward_orders().size());
    std::iota(orders.begin(), orders.end(), 0);
    return std::vector<ScheduleAxis>{
        {"m", "query rows of a block", {64, 128}, set_m},
        {"n", "keys of a tile; 64: the consumers share them", {64, 128}, set_n},
        {"stages", "blocks of Q and dO in shared memory", {1, 2, 3}, set_stages},
        {"order", "of a block's products, by number", orders, set_order},
    };
  }();
  return sm90_backward_axes;
}

ScheduleSpace schedule_space(const AttentionSpec& spec, const Target& target) {
  ScheduleSpace space;
  if (!unsupported_because(spec, target).empty()) return space;
  for (Family family : {Family::sm90, Family::sm80}) {
    if (family == Family::sm90 && !target.wgmma) continue;
    enumerate(spec, target, schedule_axes(spec.pass, family), Schedule{.family = family}, space);
  }
  return space;
}

std::string reason_class(std::string_view reason) {
  std::string text;
  bool in_number = false, in_word = false;
  for (const char c : reason) {
    const bool digit = c >= '0' && c <= '9';
    // The digits of a name such as sm_90a are no number.
    if (digit && !in_word) {
      if (!in_number) text += '#';
      in_number = true;
      continue;
    }
    in_number = false;
    in_word = digit || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    text += c;
  }
  return text;
}

}  // namespace tilewright
