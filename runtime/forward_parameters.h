// The kernels' own parameter structure, seen from the host.
#pragma once

namespace tilewright {

#include "templates/forward_parameters.cuh"

}  // namespace tilewright
