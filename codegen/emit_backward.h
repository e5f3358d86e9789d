// What makes a source one of the backward pass: its constants, files and kernels. For emit.cpp alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/emit.h"
#include "codegen/kernel_expressions.h"
#include "codegen/template_items.h"

namespace tilewright {

/// The constants of a generated source, one a line.
struct Constants {
  std::string text;

  void add(const char* type, const char* name, const std::string& value) {
    text += std::string("constexpr ") + type + " " + name + " = " + value + ";\n";
  }
  void add_int(const char* name, int64_t value) { add("int", name, std::to_string(value)); }
  void add_bool(const char* name, bool value) { add("bool", name, value ? "true" : "false"); }
};

/// Beside those that both passes have.
void add_backward_constants(Constants& constants, const AttentionSpec& spec,
                            const KernelExpressions& expressions, const Schedule& schedule,
                            const Target& target);

/// The family's template files, in the order in which they are printed, without the parameters. Names that
/// begin with "generated/" are parts that have no file; "generated/expressions" is the caller's.
std::vector<std::string_view> backward_files(const AttentionSpec& spec, Family family,
                                             const KernelExpressions& expressions);

/// A part without a file, and what its section is called.
struct GeneratedPart {
  std::string_view title;
  std::vector<TemplateItem> items;
};
GeneratedPart generated_part(std::string_view name, const AttentionSpec& spec, const Schedule& schedule,
                             Backend backend);

/// Names the kernels before and after the main one.
void add_backward_kernels(Source& source, const Schedule& schedule);

}  // namespace tilewright
