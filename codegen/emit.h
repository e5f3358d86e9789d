// Emits the CUDA source of a kernel: self-contained, deterministic, readable.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/schedule.h"
#include "codegen/spec.h"
#include "codegen/target.h"

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

/// The back ends differ in the primitives alone; the kernel's own text is the same to the letter.
enum class Backend {
  device,    // inline PTX: NVRTC or clang for NVPTX
  simulator  // plain C++ that calls the simulator through SimulatorInterface
};

/// A kernel of a source, extern "C".
struct EntryPoint {
  std::string name;
  int threads = 0;        // per block
  int shared_memory = 0;  // dynamic, bytes
  bool operator==(const EntryPoint&) const = default;
};

struct Source {
  std::string text;
  std::string file_name;    // stable: it can change the cubin
  std::string kernel_name;  // the entry point, extern "C"; of several the main one
  int threads = 0;          // per block
  int shared_memory = 0;    // dynamic, bytes
  /// The kernels that run before and after the main one: of the backward pass; forward, the one before fills
  /// the tables of look-ups, if the mask has any.
  std::optional<EntryPoint> before, after;
};

/// Of all its kernels, in the order of their launch.
std::vector<std::string> kernel_names(const Source& source);

/// Equal arguments give equal bytes, in any process, locale and directory.
Source emit(const AttentionSpec& spec, const Schedule& schedule, const Target& target, Backend backend);

}  // namespace tilewright
#pragma GCC visibility pop
