// The strict subset of YAML that specs are written in, as a tree with positions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/spec.h"

namespace tilewright {

struct YamlEntry;

struct YamlNode {
  enum class Kind { null, scalar, sequence, map };
  Kind kind = Kind::null;
  SourcePosition position;
  std::string text;     // of a scalar
  bool quoted = false;  // written with quotation marks: a string whatever it looks like
  std::vector<YamlNode> items;
  std::vector<YamlEntry> entries;
};

struct YamlEntry {
  std::string key;
  SourcePosition key_position;
  YamlNode value;
};

/// Reads exactly one document. Throws SpecError for malformed YAML, duplicate keys, keys that are not words,
/// anchors, aliases, tags, further documents, control characters, bytes that are not UTF-8, texts over 64 KiB
/// and deep nesting.
YamlNode parse_yaml(std::string_view text, std::string_view file);

[[noreturn]] void throw_spec_error(std::string_view file, SourcePosition position, std::string_view message);

/// Text of the user's for a message: in quotation marks, shortened, printable.
std::string quoted_for_message(std::string_view text);

}  // namespace tilewright
