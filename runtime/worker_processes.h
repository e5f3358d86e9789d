// Work shared out among child processes. NVRTC's front end takes one compile at a time in a process.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace tilewright {

/// What became of one piece of work: its answer, or how the process ended that was at it.
struct WorkResult {
  std::string answer;
  std::string failure;  // empty: there is an answer
};

/// Calls `work` for 0 to `count` - 1 in up to `processes` children of this process, each of which takes the
/// next piece when it has finished one, and `done` here for each result, in the order in which they come. A
/// child that dies, or takes longer than `seconds` for a piece, costs that piece alone. The caller must have
/// one thread. Throws Error(environment) if no child can be started.
void share_out(size_t count, size_t processes, double seconds, const std::function<std::string(size_t)>& work,
               const std::function<void(size_t, WorkResult)>& done);

}  // namespace tilewright
