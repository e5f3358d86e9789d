// Device memory that a caller lends to a launch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilewright {

/// Throws Error(usage) that says how many bytes are needed, unless the workspace has them.
void check_workspace(int64_t need, const void* workspace, size_t bytes);

}  // namespace tilewright
