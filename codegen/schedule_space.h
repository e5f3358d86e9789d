// Every schedule that a spec could have on a target: the axes of each family, in one place, and which points
// of their product can run.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/schedule.h"
#include "codegen/spec.h"
#include "codegen/target.h"

namespace tilewright {

/// A number of a schedule that may be chosen freely. Flags take the values 0 and 1.
struct ScheduleAxis {
  std::string_view name;  // as under `blocks:` of a spec
  std::string_view meaning;
  std::vector<int> values;
  void (*set)(Schedule& schedule, int value);
};

/// The axes of a family's pass. What follows from others (the warps of an sm90 block) is no axis.
std::span<const ScheduleAxis> schedule_axes(Pass pass, Family family);

/// Points that cannot run, by the first reason of each. A reason's class is its text with # for every number.
struct RefusedPoints {
  int count = 0;
  std::string example;  // schedule and reasons of the first
};

struct ScheduleSpace {
  int points = 0;
  std::vector<Schedule> legal;  // in the order of the axes' values: stable
  std::map<std::string, RefusedPoints> refused;
};

/// All points of all families that serve the target. A spec's own `blocks` are not looked at.
ScheduleSpace schedule_space(const AttentionSpec& spec, const Target& target);

/// "the tiles take # bytes of shared memory …" for "the tiles take 98304 bytes of shared memory …".
std::string reason_class(std::string_view reason);

}  // namespace tilewright
