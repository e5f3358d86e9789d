// The keys of a spec that hold expressions and what they use: mask, score, scalars, tensors.
#pragma once

#include <optional>
#include <string_view>

#include "codegen/spec.h"
#include "codegen/spec_rules.h"
#include "codegen/spec_yaml.h"

namespace tilewright {

/// The text that a tree of YAML was read from, for places inside of it.
struct YamlSource {
  std::string_view text;
  std::string_view file;
};

/// All throw SpecError.
void read_scalars(const YamlSource& source, const YamlNode& node, Declarations& declarations);
void read_tensors(const YamlSource& source, const YamlNode& node, Declarations& declarations);
Expression read_mask_expression(const YamlSource& source, const YamlNode& node,
                                const Declarations& declarations);
Expression read_score_expression(const YamlSource& source, const YamlNode& node,
                                 const Declarations& declarations);

/// What a mask's text is when it is no word that the language knows.
bool looks_like_expression(std::string_view text);

/// The first broken rule of the expressions and declarations of a spec.
std::optional<SpecProblem> find_expression_problem(const AttentionSpec& spec);

}  // namespace tilewright
