// A compiler turns generated source into something loadable. NVRTC is the default; the LLVM plugin is the
// other.
#pragma once

#include <memory>
#include <string>

#include "codegen/emit.h"
#include "codegen/target.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

struct CompiledImage {
  std::string image;  // cubin or PTX
  bool is_ptx = false;
  CompileReport report;
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  /// Name and exact version or build; part of the cache key.
  virtual std::string identity() = 0;
  /// The options for a target, in order; part of the cache key.
  virtual std::vector<std::string> options(const Target& target, bool as_ptx) = 0;
  /// Throws CompileError with the log and the command (an empty source path: the caller keeps the source and adds it),
  /// Error(environment) if the compiler cannot serve the target. `is_ptx` of the result may be set unasked, with a note
  /// that says why.
  virtual CompiledImage compile(const Source& source, const Target& target, bool as_ptx) = 0;
};

/// Loads NVRTC (TILEWRIGHT_NVRTC, the toolkit, Python wheels) on first use. Throws Error(environment) naming
/// every path tried.
Compiler& nvrtc_compiler();

}  // namespace tilewright
