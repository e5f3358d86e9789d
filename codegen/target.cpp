#include "codegen/target.h"

#include "codegen/error.h"
#include "codegen/nearest.h"

namespace tilewright {
namespace {

constexpr int kib = 1024;

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr Target table[] = {
    {"sm_80", "Ampere (A100)", 8, 0, 163 * kib, 164 * kib, 65536, 64, 32, false, false, false},
    {"sm_86", "Ampere (GA10x)", 8, 6, 99 * kib, 100 * kib, 65536, 48, 16, false, false, false},
    {"sm_87", "Ampere (Orin)", 8, 7, 163 * kib, 164 * kib, 65536, 48, 16, false, false, false},
    {"sm_89", "Ada", 8, 9, 99 * kib, 100 * kib, 65536, 48, 24, false, false, false},
    {"sm_90a", "Hopper", 9, 0, 227 * kib, 228 * kib, 65536, 64, 32, true, true, false},
    {"sm_100a", "Blackwell (B200)", 10, 0, 227 * kib, 228 * kib, 65536, 64, 32, false, true, true},
    {"sm_103a", "Blackwell (B300)", 10, 3, 227 * kib, 228 * kib, 65536, 64, 32, false, true, true},
    {"sm_120a", "Blackwell (RTX 50)", 12, 0, 99 * kib, 100 * kib, 65536, 48, 24, false, true, false},
    {"sm_121a", "Blackwell (GB10)", 12, 1, 99 * kib, 100 * kib, 65536, 48, 24, false, true, false},
};

const Target& find(std::string_view name) {
  for (const Target& target : table)
    if (target.name == name) return target;
  throw Error(ErrorKind::internal, "the target table lacks " + std::string(name));
}

}  // namespace

std::span<const Target> targets() {
  return table;
}

const Target& target_by_name(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Target& target : table) {
    if (target.name == name) return target;
    names.push_back(target.name);
  }
  std::string message = "unknown target \"" + std::string(name) + "\"; expected one of";
  for (std::string_view known : names) message += " " + std::string(known);
  message += "; nearest: " + std::string(nearest(name, names));
  throw Error(ErrorKind::usage, message);
}

TargetChoice target_for_device(int major, int minor) {
  const std::string capability = std::to_string(major) + "." + std::to_string(minor);
  for (const Target& target : table)
    if (target.major == major && target.minor == minor) return {&target, false, ""};
  if (major < 8)
    return {nullptr, false,
            "compute capability " + capability +
                " is too old: kernels need 8.0 or newer (bf16 matrix instructions and asynchronous copies)"};
  // PTX of a generation without the `a` suffix runs on everything newer. sm_86 has the smallest shared memory
  // of all targets, so its schedules fit a device that nobody has described yet.
  const bool before_86 = major == 8 && minor < 6;
  return {&find(before_86 ? "sm_80" : "sm_86"), true,
          "compute capability " + capability + " is not in the target table: PTX for " +
              (before_86 ? "sm_80" : "sm_86") + ", which the driver translates"};
}

}  // namespace tilewright
