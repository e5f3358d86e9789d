// The kernels' own parameter structures, seen from the host.
#pragma once

namespace tilewright {

#include "templates/forward_parameters.cuh"
#include "templates/sm90/parameters.cuh"

}  // namespace tilewright
