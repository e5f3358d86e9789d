#include "runtime/workspace.h"

#include <string>

#include "codegen/error.h"

namespace tilewright {

void check_workspace(int64_t need, const void* workspace, size_t bytes) {
  constexpr uintptr_t alignment = 16;
  if (need == 0) return;
  const std::string expected = ", expected " + std::to_string(need) + " bytes (Kernel::workspace_size)";
  if (!workspace) throw Error(ErrorKind::usage, "workspace: it is missing" + expected);
  if (bytes < static_cast<uint64_t>(need))
    throw Error(ErrorKind::usage, "workspace: it has " + std::to_string(bytes) + " bytes" + expected);
  if (reinterpret_cast<uintptr_t>(workspace) % alignment != 0)
    throw Error(ErrorKind::usage, "workspace: its address is no multiple of " + std::to_string(alignment) +
                                      " bytes, which is expected");
}

}  // namespace tilewright
