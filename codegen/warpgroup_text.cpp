#include "codegen/warpgroup_text.h"

namespace tilewright {

std::string text(int value) {
  return std::to_string(value);
}

std::string registers(int first, int count) {
  std::string list = "{";
  for (int i = 0; i < count; ++i) list.append(i ? ", %" : "%").append(text(first + i));
  return list += "}";
}

std::string operands(const char* constraint, const char* name, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    list.append(i ? ", \"" : "\"")
        .append(constraint)
        .append("\"(")
        .append(name)
        .append("[")
        .append(text(i))
        .append("])");
    if (i % 64 == 63 && i + 1 < count) list += "\n                 ";
  }
  return list;
}

std::string step_offset(int k, int panel_rows) {
  return text((k / 4 * panel_rows * 128 + k % 4 * 32) / 16);
}

TemplateItem warpgroup_primitive(Backend backend, const char* name, const char* comment, const char* before,
                                 const std::string& parameters, const std::string& device,
                                 const std::string& simulator) {
  TemplateItem item;
  item.name = name;
  item.identifiers = {"u32"};
  const bool on_device = backend == Backend::device;
  item.text = std::string(comment) + before + "__device__ __forceinline__ void " + name + "(" + parameters +
              (on_device ? ") {\n" : ", int site = __builtin_LINE()) {\n") +
              (on_device ? device : simulator) + "}\n";
  return item;
}

}  // namespace tilewright
