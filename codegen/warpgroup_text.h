// The text of primitives around a warpgroup's products, whose operands are listed for one shape.
#pragma once

#include <string>

#include "codegen/emit.h"
#include "codegen/template_items.h"

namespace tilewright {

std::string text(int value);

/// {%first, ..., %(first + count - 1)}
std::string registers(int first, int count);

/// "constraint"(name[0]), "constraint"(name[1]), ...
std::string operands(const char* constraint, const char* name, int count);

/// Offset, in the descriptor's 16-byte units, of step k of an operand whose rows run along k: 32 bytes within
/// a 128-byte panel row, then the next panel.
std::string step_offset(int k, int panel_rows);

/// One primitive, ready to print. `parameters` and the bodies are C++ text; built straight for one back end,
/// since taking apart text of this size again would be most of the time that a kernel from disk takes.
TemplateItem warpgroup_primitive(Backend backend, const char* name, const char* comment, const char* before,
                                 const std::string& parameters, const std::string& device,
                                 const std::string& simulator);

}  // namespace tilewright
