// Compiles many schedules in worker processes, as many side by side as cores and memory allow.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "codegen/schedule.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// How many compiles may run at once: one a core, but no more than fit the memory that is free. At least 1.
/// `available_bytes` below 0: not known.
int compiles_at_once(int cores, int64_t available_bytes);

/// Free memory by /proc/meminfo and the limit of this process's control group; below 0: not known.
int64_t available_memory();

/// What became of one compile: a report, or the reason why there is none.
struct CompileOutcome {
  CompileReport report;
  std::string failure;
};

struct CompileJob {
  AttentionSpec spec;
  Schedule schedule;
};

/// Compiles into the cache of `options` (it must have a disk layer). A compile that crashes, hangs or fails
/// costs its own outcome alone. `done` is called after each, with its index.
std::vector<CompileOutcome> compile_all(const std::vector<CompileJob>& jobs, const Target& target,
                                        bool as_ptx, const RuntimeOptions& options, int at_once,
                                        const std::function<void(size_t)>& done = {});

}  // namespace tilewright
