// The grid of specs and shapes that every device must compute right.
#pragma once

#include "tests/support/attention_case.h"

namespace tilewright::test {

/// Named groups, so that a test is one group: head dims, masks, ratios, lengths, strides, schedules.
struct GridGroup {
  std::string name;
  std::vector<AttentionCase> cases;
};
std::vector<GridGroup> attention_grid();

/// Schedules of the sm90 family, which only a target with wgmma runs.
GridGroup hopper_schedules();
GridGroup hopper_clusters();
GridGroup hopper_pack_groups();

inline void PrintTo(const GridGroup& group, std::ostream* out) {
  *out << group.name;
}

}  // namespace tilewright::test
