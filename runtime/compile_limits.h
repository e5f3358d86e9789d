// How many compiles a machine takes side by side.
#pragma once

#include <cstdint>

namespace tilewright {

/// How many compiles may run at once: one a core, but no more than fit the memory that is free. At least 1.
/// `available_bytes` below 0: not known.
int compiles_at_once(int cores, int64_t available_bytes);

/// Free memory by /proc/meminfo and the limit of this process's control group; below 0: not known.
int64_t available_memory();

}  // namespace tilewright
