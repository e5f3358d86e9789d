// What the two printers of CUDA text share.
#pragma once

#include <string>

#include "codegen/expression.h"

namespace tilewright {

/// "q", "scope.head".
std::string variable_text(ExpressionVariable variable);

/// The value as text; `statements` gains what must stand before it, under names v1, v2 … that `names` counts.
std::string value_text(const Expression& expression, std::string& statements, int& names);

}  // namespace tilewright
