#include "codegen/spec_yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <optional>
#include <sstream>
#include <utility>

#include "codegen/error.h"
#include "codegen/expression_words.h"

namespace tilewright {
namespace {

constexpr size_t max_text_size = 64 * 1024;
constexpr size_t max_depth = 8;

SourcePosition position_of(const YAML::Mark& mark) {
  return {mark.line + 1, mark.column + 1};
}

/// Length of the UTF-8 sequence at the start of `text`, 0 if it is malformed.
size_t utf8_length(std::string_view text) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF && continues(1)) return 2;
  bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  bool surrogate = first == 0xED && byte(1) >= 0xA0;
  bool too_large = first == 0xF4 && byte(1) >= 0x90;
  if (overlong || surrogate || too_large) return 0;
  if (first >= 0xE0 && first <= 0xEF && continues(1) && continues(2)) return 3;
  if (first >= 0xF0 && first <= 0xF4 && continues(1) && continues(2) && continues(3)) return 4;
  return 0;
}

/// yaml-cpp guesses encodings and gives some control characters a meaning of its own, so they never reach it.
void check_characters(std::string_view text, std::string_view file) {
  SourcePosition position{1, 1};
  for (size_t i = 0; i < text.size();) {
    size_t length = utf8_length(text.substr(i));
    if (length == 0)
      throw_spec_error(file, position, "this byte is not UTF-8; expected text encoded as UTF-8");
    unsigned char c = static_cast<unsigned char>(text[i]);
    bool allowed = (c >= 0x20 && c != 0x7F) || c == '\n' || c == '\r' || c == '\t';
    if (!allowed) {
      throw_spec_error(file, position,
                       fmt::format("control character 0x{:02x}; expected printable text", unsigned{c}));
    }
    if (c == '\n') {
      ++position.line;
      position.column = 0;
    }
    ++position.column;
    i += length;
  }
}

/// In a flow map YAML ends a plain word at a bracket or comma, so `{document: int32[kv]}` would need
/// quotation marks. Until yaml-cpp is through, the brackets and commas of tensor types are control
/// characters, which no text holds.
constexpr std::string_view type_brackets = "[],", type_placeholders = "\x01\x02\x03";

std::string hide_type_brackets(std::string_view text) {
  const auto in_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  std::string hidden(text);
  for (const auto& [word, type] : element_words) {
    const std::string start = std::string(word) + "[";
    for (size_t at = text.find(start); at != text.npos; at = text.find(start, at + 1)) {
      const size_t open = at + word.size();
      size_t close = open + 1;
      while (close < text.size() && (in_name(text[close]) || text[close] == ' ' || text[close] == ','))
        ++close;
      if (close == text.size() || text[close] != ']' || (at > 0 && in_name(text[at - 1]))) continue;
      for (size_t i = open; i <= close; ++i)
        if (size_t which = type_brackets.find(text[i]); which != type_brackets.npos)
          hidden[i] = type_placeholders[which];
    }
  }
  return hidden;
}

std::string show_type_brackets(std::string text) {
  for (char& c : text)
    if (size_t which = type_placeholders.find(c); which != type_placeholders.npos) c = type_brackets[which];
  return text;
}

/// Turns yaml-cpp's events into the tree. Refusing aliases here means that nothing is ever expanded.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string_view file) : file_(file) {}

  std::optional<YamlNode> take_root() { return std::exchange(root_, std::nullopt); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    YamlNode node;
    node.position = position_of(mark);
    // For a missing value yaml-cpp gives the place of the whole map; the key is what people look for.
    if (!open_.empty() && open_.back().has_key) node.position = open_.back().key_position;
    add(std::move(node));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw_spec_error(file_, position_of(mark),
                     "aliases are not part of the language; expected the value itself");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    node.position = position_of(mark);
    node.text = show_type_brackets(value);
    node.quoted = tag == "!";
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::sequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct OpenNode {
    YamlNode node;
    bool has_key = false;  // of a map: the key is known, its value comes next
    std::string key;
    SourcePosition key_position;
  };

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0)
      throw_spec_error(file_, position_of(mark), "anchors (&name) are not part of the language");
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    bool plain = tag.empty() || tag == "?" || tag == "!";  // "!" is how yaml-cpp marks quoted scalars
    if (!plain) {
      throw_spec_error(file_, position_of(mark),
                       "tags are not part of the language; expected a plain value, or quotation marks around "
                       "a text that begins with `!`");
    }
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (open_.size() == max_depth) {
      throw_spec_error(file_, position_of(mark), fmt::format("nested more than {} levels deep", max_depth));
    }
    OpenNode opened;
    opened.node.kind = kind;
    opened.node.position = position_of(mark);
    open_.push_back(std::move(opened));
  }

  void close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    OpenNode& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::sequence) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      take_key(parent, node);
    } else {
      parent.node.entries.push_back({std::move(parent.key), parent.key_position, std::move(node)});
      parent.has_key = false;
    }
  }

  void take_key(OpenNode& parent, YamlNode& node) {
    if (node.kind != YamlNode::Kind::scalar) {
      throw_spec_error(file_, node.position, "this key is not a word; expected `key: value`");
    }
    for (const YamlEntry& entry : parent.node.entries) {
      if (entry.key == node.text) {
        throw_spec_error(file_, node.position,
                         fmt::format("duplicate key {}; expected each key once, it is on line {} already",
                                     quoted_for_message(node.text), entry.key_position.line));
      }
    }
    parent.has_key = true;
    parent.key = std::move(node.text);
    parent.key_position = node.position;
  }

  std::string_view file_;
  std::vector<OpenNode> open_;
  std::optional<YamlNode> root_;
};

}  // namespace

void throw_spec_error(std::string_view file, SourcePosition position, std::string_view message) {
  throw SpecError(fmt::format("{}:{}:{}: {}", file, position.line, position.column, message), position.line,
                  position.column);
}

std::string quoted_for_message(std::string_view text) {
  constexpr size_t longest = 48;
  std::string result = "'";
  for (size_t i = 0; i < text.size();) {
    if (result.size() > longest) {
      result += "…";
      break;
    }
    size_t length = utf8_length(text.substr(i));
    unsigned char c = static_cast<unsigned char>(text[i]);
    if (length == 0 || c < 0x20 || c == 0x7F) {
      result += '?';
      length = 1;
    } else {
      result += text.substr(i, length);
    }
    i += length;
  }
  return result + "'";
}

YamlNode parse_yaml(std::string_view text, std::string_view file) {
  if (text.size() > max_text_size) {
    throw_spec_error(file, {1, 1},
                     fmt::format("the text has over {0} bytes; expected at most {0}", max_text_size));
  }
  check_characters(text, file);
  std::istringstream stream{hide_type_brackets(text)};
  TreeBuilder builder(file);
  try {
    YAML::Parser parser(stream);
    bool any = parser.HandleNextDocument(builder);
    std::optional<YamlNode> root = builder.take_root();
    if (!any || !root) throw_spec_error(file, {1, 1}, "the spec is empty; expected at least `head_dim: 128`");
    if (parser.HandleNextDocument(builder)) {
      std::optional<YamlNode> second = builder.take_root();
      throw_spec_error(file, second ? second->position : SourcePosition{1, 1},
                       "a second document starts here; expected one spec a file");
    }
    return std::move(*root);
  } catch (const YAML::Exception& error) {
    throw_spec_error(
        file, position_of(error.mark),
        fmt::format(
            "malformed YAML: {}{}", error.msg,
            error.msg == YAML::ErrorMsg::MAP_VALUE ? "; a text that holds `: ` needs quotation marks" : ""));
  }
}

}  // namespace tilewright
