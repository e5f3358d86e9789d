// The default compiler: NVRTC.
#pragma once

#include <filesystem>
#include <memory>

#include "runtime/compiler.h"

namespace tilewright {

/// A compiler over one NVRTC file; the library is loaded by the first compile. Thread-safe.
std::unique_ptr<Compiler> make_nvrtc_compiler(const std::filesystem::path& file);

}  // namespace tilewright
