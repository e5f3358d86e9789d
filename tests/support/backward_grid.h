// The grid of backward specs and shapes that every family must compute right.
#pragma once

#include <string>
#include <vector>

#include "tests/support/attention_grid.h"
#include "tests/support/backward_case.h"

namespace tilewright::test {

/// One target of each family with backward kernels.
inline std::vector<std::string> backward_targets() {
  return {"sm_80", "sm_90a"};
}

/// For any family: head dims, lengths against masks, ratios, scores, strides.
std::vector<GridGroup> backward_grid();

/// Schedules of the sm80 family.
GridGroup backward_schedules();

}  // namespace tilewright::test
