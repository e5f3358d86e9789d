// The derivative of a score expression by `score`, for the backward pass.
#pragma once

#include "codegen/expression.h"

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

/// Symbolic and simplified. Of what jumps or bends it is the derivative beside that place, on the side whose
/// value is taken: floor, comparisons and indices count as constant.
Expression derivative_by_score(const Expression& score);

}  // namespace tilewright
#pragma GCC visibility pop
