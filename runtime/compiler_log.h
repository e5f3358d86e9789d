// What a compiler's log says about a kernel that it accepted.
#pragma once

#include <string>
#include <string_view>

#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// Reads `ptxas -v` lines: registers and spill bytes (stores and loads, added up over functions) into the
/// report. Warnings and numbered advice ("(C7510) … wgmma serialised", "(C7508) setmaxnreg ignored") become
/// notes.
void read_compiler_log(std::string_view log, CompileReport& report);

}  // namespace tilewright
