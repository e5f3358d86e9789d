// The device templates as text, embedded at build time.
#pragma once

#include <string_view>

namespace tilewright {

struct EmbeddedTemplate {
  std::string_view file;  // path below templates/
  std::string_view text;
};
extern const EmbeddedTemplate embedded_templates[];
extern const int embedded_template_count;

}  // namespace tilewright
