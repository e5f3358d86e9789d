// The kernels' own parameter structures, seen from the host.
#pragma once

namespace tilewright {

#include "templates/forward_parameters.cuh"

// After those of the forward pass, which they hold.
#include "templates/backward_parameters.cuh"
// apart from it
#include "templates/expression_parameters.cuh"
#include "templates/sm90/parameters.cuh"

#include "templates/sm90/backward_parameters.cuh"

}  // namespace tilewright
