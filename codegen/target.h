// The one table of what each GPU generation has.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

struct Target {
  std::string_view name;        // "sm_90a": exactly what the compilers are told
  std::string_view generation;  // "Hopper"
  int major, minor;             // compute capability
  int shared_memory_per_block;  // bytes, opt-in limit
  int shared_memory_per_sm;     // bytes; each resident block takes 1024 more than it asks for
  int registers_per_sm;         // 32-bit
  int max_warps_per_sm;
  int max_blocks_per_sm;
  bool wgmma, tma, tcgen05;  // instruction families beyond sm80's
};

/// All targets, oldest first.
std::span<const Target> targets();

/// By exact name; throws SpecError-free Error(usage) naming the nearest one.
const Target& target_by_name(std::string_view name);

/// What to compile for a device of this compute capability.
struct TargetChoice {
  const Target* target = nullptr;  // null: refused, see reason
  bool as_ptx = false;  // newer than the table: PTX of the newest base target that the driver can translate
  std::string reason;
};
TargetChoice target_for_device(int major, int minor);

}  // namespace tilewright
#pragma GCC visibility pop
