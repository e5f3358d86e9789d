// Cuts template files into items (one declaration each) and finds the ones that a kernel needs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/emit.h"

namespace tilewright {

/// One top-level declaration with the comment above it.
struct TemplateItem {
  std::string name;                      // what others refer to it by
  std::string text;                      // ready to print for the backend
  std::vector<std::string> identifiers;  // every identifier in `text`, comments aside; sorted, each once
};

/// `text` holds comments, preprocessor lines and declarations. PRIMITIVE items become ordinary functions with
/// the body of `backend`. A file's first comment block, if a blank line follows, is its title and belongs to
/// no item.
std::vector<TemplateItem> parse_template(std::string_view text, Backend backend);

/// The identifiers in a text, comments aside; sorted, each once.
std::vector<std::string> identifiers_in(std::string_view text);

/// That title's first sentence, without comment signs.
std::string template_title(std::string_view text);

}  // namespace tilewright
