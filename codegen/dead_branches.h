// Takes out of template text what a kernel's constants decide: only what is used is printed.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace tilewright {

/// `text` without the `if` statements whose condition holds a term (of terms joined by &&) that `constants`
/// make false: `name` of a false one or `!name` of a true one. An `if` with an `else`, or over a loop without
/// braces, stays.
std::string without_dead_branches(std::string_view text, const std::map<std::string, bool>& constants);

}  // namespace tilewright
