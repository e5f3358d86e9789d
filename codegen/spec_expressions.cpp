#include "codegen/spec_expressions.h"

#include <fmt/format.h>

#include <array>
#include <set>

#include "codegen/expression_words.h"
#include "codegen/nearest.h"

namespace tilewright {
namespace {

constexpr size_t max_declarations = 32;  // of scalars, and of tensors

/// The source from the place on, to the end of its line. yaml-cpp's columns count bytes.
std::string_view line_from(std::string_view text, SourcePosition position) {
  size_t begin = 0;
  for (int line = 1; line < position.line; ++line) {
    begin = text.find('\n', begin);
    if (begin == text.npos) return {};
    ++begin;
  }
  begin += static_cast<size_t>(position.column - 1);
  return begin < text.size() ? text.substr(begin, text.find('\n', begin) - begin) : std::string_view{};
}

/// The place of byte `offset` of the node's text; where YAML folded or unescaped the text, the place of its
/// start.
SourcePosition place_in(const YamlSource& source, const YamlNode& node, size_t offset) {
  const SourcePosition start = {node.position.line, node.position.column + (node.quoted ? 1 : 0)};
  const bool verbatim = line_from(source.text, start).starts_with(node.text);
  return verbatim ? SourcePosition{start.line, start.column + static_cast<int>(offset)} : node.position;
}

[[noreturn]] void fail(const YamlSource& source, const YamlNode& node, std::string_view key,
                       const ExpressionError& error) {
  throw_spec_error(source.file, place_in(source, node, error.offset()),
                   fmt::format("{}: {}\n{}", key, error.what(), caret_lines(node.text, error.offset())));
}

Expression read_expression(const YamlSource& source, const YamlNode& node, std::string_view key,
                           Expression (*parse)(std::string_view, const Declarations&),
                           const Declarations& declarations) {
  try {
    return parse(node.text, declarations);
  } catch (const ExpressionError& error) {
    fail(source, node, key, error);
  }
}

void check_map(const YamlSource& source, const YamlNode& node, std::string_view key,
               std::string_view example) {
  if (node.kind != YamlNode::Kind::map)
    throw_spec_error(source.file, node.position,
                     fmt::format("{}: expected a map of names, such as {}", key, example));
}

void check_text(const YamlSource& source, const YamlEntry& entry, std::string_view key,
                std::string_view expected) {
  if (entry.value.kind != YamlNode::Kind::scalar)
    throw_spec_error(source.file, entry.value.position,
                     fmt::format("{}.{}: expected {}", key, entry.key, expected));
}

SpecProblem problem(std::string field, std::string fault, std::string expected) {
  fault = fmt::format("{}: {}", field, fault);
  return SpecProblem{std::move(field), std::move(fault), std::move(expected), ""};
}

/// Names that are wrong, declared twice or unused.
std::optional<SpecProblem> find_name_problem(const AttentionSpec& spec, const std::set<std::string>& used) {
  const auto check_name = [&](const std::string& key, const std::string& name) -> std::optional<SpecProblem> {
    const std::string field = key + "." + name;
    if (const std::string fault = name_problem(name); !fault.empty()) {
      const size_t split = fault.find("; expected ");
      return problem(field, fault.substr(0, split), fault.substr(split + 11));
    }
    if (key == "tensors" && spec.declarations.scalars.count(name))
      return problem(field, "a scalar has this name already", "another name");
    if (!used.count(name))
      return problem(field, "neither mask nor score uses it", "a use, or no declaration");
    return std::nullopt;
  };
  const auto check_count = [](const char* key, size_t count) -> std::optional<SpecProblem> {
    if (count <= max_declarations) return std::nullopt;
    return problem(key, fmt::format("{} names", count), fmt::format("at most {}", max_declarations));
  };
  if (auto found = check_count("scalars", spec.declarations.scalars.size())) return found;
  if (auto found = check_count("tensors", spec.declarations.tensors.size())) return found;
  for (const auto& declared : spec.declarations.scalars)
    if (auto found = check_name("scalars", declared.first)) return found;
  for (const auto& declared : spec.declarations.tensors)
    if (auto found = check_name("tensors", declared.first)) return found;
  return std::nullopt;
}

/// A tree that code put together obeys the same rules as one that was parsed.
std::optional<SpecProblem> find_tree_problem(const Expression& expression, const char* key,
                                             Expression (*parse)(std::string_view, const Declarations&),
                                             const Declarations& declarations) {
  const std::string text = to_text(expression);
  try {
    if (parse(text, declarations) == expression) return std::nullopt;
    return problem(key, fmt::format("{} is another tree than its text says", quoted_for_message(text)),
                   "the result of parse_mask or parse_score");
  } catch (const ExpressionError& error) {
    return problem(key, error.what(), "names and types as declared");
  }
}

}  // namespace

bool looks_like_expression(std::string_view text) {
  return text.find_first_of(" <>=&|!()+*/%[]?") != text.npos;
}

Expression read_mask_expression(const YamlSource& source, const YamlNode& node,
                                const Declarations& declarations) {
  return read_expression(source, node, "mask", parse_mask, declarations);
}

Expression read_score_expression(const YamlSource& source, const YamlNode& node,
                                 const Declarations& declarations) {
  if (node.kind != YamlNode::Kind::scalar)
    throw_spec_error(source.file, node.position,
                     "score: expected an expression, such as \"score - slope[head] * abs(q - kv)\"");
  return read_expression(source, node, "score", parse_score, declarations);
}

void read_scalars(const YamlSource& source, const YamlNode& node, Declarations& declarations) {
  check_map(source, node, "scalars", "{window: int, cap: float}");
  for (const YamlEntry& entry : node.entries) {
    static constexpr std::string_view expected = "int or float";
    check_text(source, entry, "scalars", expected);
    const std::string& text = entry.value.text;
    const bool integer = text == name_of(ScalarType::integer);
    if (!integer && text != name_of(ScalarType::number)) {
      const std::string_view near = nearest(text, std::array<std::string_view, 2>{"int", "float"});
      throw_spec_error(
          source.file, entry.value.position,
          fmt::format("scalars.{}: {} is not valid; expected {}{}", entry.key, quoted_for_message(text),
                      expected, near.empty() ? "" : fmt::format("; nearest: {}", near)));
    }
    declarations.scalars[entry.key] = integer ? ScalarType::integer : ScalarType::number;
  }
}

void read_tensors(const YamlSource& source, const YamlNode& node, Declarations& declarations) {
  check_map(source, node, "tensors", "{document: int32[kv], slope: float32[head]}");
  for (const YamlEntry& entry : node.entries) {
    check_text(source, entry, "tensors", "an element type and dimensions, such as int32[kv]");
    try {
      declarations.tensors[entry.key] = parse_tensor_type(entry.value.text);
    } catch (const ExpressionError& error) {
      fail(source, entry.value, "tensors." + entry.key, error);
    }
  }
}

std::optional<SpecProblem> find_expression_problem(const AttentionSpec& spec) {
  const bool expression_mask = spec.mask.kind == Mask::Kind::expression;
  if (expression_mask != spec.mask.expression.has_value())
    return problem("mask", "kind and expression do not agree", "an expression with Kind::expression alone");
  std::set<std::string> used;
  if (spec.mask.expression) collect_names(*spec.mask.expression, used);
  if (spec.score) collect_names(*spec.score, used);
  if (auto found = find_name_problem(spec, used)) return found;
  if (spec.mask.expression)
    if (auto found = find_tree_problem(*spec.mask.expression, "mask", parse_mask, spec.declarations))
      return found;
  if (spec.score) return find_tree_problem(*spec.score, "score", parse_score, spec.declarations);
  return std::nullopt;
}

}  // namespace tilewright
