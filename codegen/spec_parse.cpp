// From YAML to AttentionSpec: strict, every error with its place and what would have been right.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "codegen/error.h"
#include "codegen/nearest.h"
#include "codegen/spec.h"
#include "codegen/spec_expressions.h"
#include "codegen/spec_rules.h"
#include "codegen/spec_yaml.h"

namespace tilewright {
namespace {

using Kind = YamlNode::Kind;

/// "100", "'a word'", "a list": how a message refers to what was written.
std::string shown(const YamlNode& node) {
  switch (node.kind) {
    case Kind::null:
      return "nothing";
    case Kind::sequence:
      return "a list";
    case Kind::map:
      return "a map";
    case Kind::scalar:
      break;
  }
  return quoted_for_message(node.text);
}

std::optional<int64_t> integer_in(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// A number too large for int64 is still a number: the message should speak of its size.
bool is_digits(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

/// YAML 1.1 reads 010 as eight, YAML 1.2 as ten.
bool has_leading_zero(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

class SpecReader {
 public:
  SpecReader(std::string_view text, std::string_view file) : source_{text, file}, file_(file) {}

  AttentionSpec read(const YamlNode& root) {
    if (root.kind != Kind::map) {
      fail(root, fmt::format("found {}; expected a map of keys, such as `head_dim: 128`", shown(root)));
    }
    for (const YamlEntry& entry : root.entries) read_key(entry);
    if (mask_node_) spec_.mask.expression = read_mask_expression(source_, *mask_node_, spec_.declarations);
    if (score_node_) spec_.score = read_score_expression(source_, *score_node_, spec_.declarations);
    if (!positions_.count("head_dim")) {
      fail(root, "head_dim is missing; expected " + description(head_dim_rule) + ", or {qk: …, v: …}");
    }
    for (const SpecProblem& problem : find_problems(spec_)) {
      auto position = positions_.find(problem.field);
      throw_spec_error(file_, position == positions_.end() ? root.position : position->second,
                       problem.message());
    }
    return spec_;
  }

 private:
  [[noreturn]] void fail(const YamlNode& node, std::string_view message) const {
    throw_spec_error(file_, node.position, message);
  }

  [[noreturn]] void fail_value(const YamlNode& node, std::string_view field, std::string_view expected,
                               std::string_view near = {}) const {
    std::string message = fmt::format("{}: {} is not valid; expected {}", field, shown(node), expected);
    if (!near.empty()) message += fmt::format("; nearest: {}", near);
    fail(node, message);
  }

  template <typename Keys>
  [[noreturn]] void fail_unknown_key(const YamlEntry& entry, std::string_view field, const Keys& keys) const {
    std::string where = field.empty() ? "" : fmt::format(" in {}", field);
    std::string message = fmt::format("unknown key {}{}; expected {}{}", quoted_for_message(entry.key), where,
                                      keys.size() == 1 ? "" : "one of ", joined(keys));
    std::string_view near = nearest(entry.key, keys);
    if (!near.empty()) message += fmt::format("; nearest: {}", near);
    throw_spec_error(file_, entry.key_position, message);
  }

  void read_key(const YamlEntry& entry) {
    const std::string& key = entry.key;
    const YamlNode& value = entry.value;
    positions_[key] = value.position;
    if (key == "name") {
      spec_.name = read_string(value, "name");
    } else if (key == "pass") {
      spec_.pass = read_word<Pass>(value, key, {Pass::forward, Pass::backward, Pass::decode});
    } else if (key == "head_dim") {
      read_head_dim(value);
    } else if (key == "dtype") {
      read_dtype(value);
    } else if (key == "gqa_ratio") {
      spec_.gqa_ratio = read_integer(value, gqa_ratio_rule);
    } else if (key == "mask") {
      read_mask(value);
    } else if (key == "layout") {
      spec_.layout =
          read_word<Layout>(value, key, {Layout::bshd, Layout::bhsd, Layout::packed, Layout::paged});
    } else if (key == "page_size") {
      spec_.page_size = read_integer(value, page_size_rule);
    } else if (key == "blocks") {
      read_blocks(value);
    } else if (key == "softmax_scale") {
      read_softmax_scale(value);
    } else if (key == "softcap") {
      spec_.softcap = read_number(value, softcap_rule);
    } else if (key == "lse") {
      spec_.lse = read_flag(value, key);
    } else if (key == "alibi") {
      spec_.alibi = read_flag(value, key);
    } else if (key == "bias") {
      spec_.bias = read_flag(value, key);
    } else if (key == "bias_gradient") {
      spec_.bias_gradient = read_flag(value, key);
    } else if (key == "sinks") {
      spec_.sinks = read_flag(value, key);
    } else if (key == "dropout") {
      spec_.dropout = read_flag(value, key, "; the probability is given at launch");
    } else if (key == "deterministic") {
      spec_.deterministic = read_flag(value, key);
    } else if (key == "rope") {
      read_rope(value);
    } else if (key == "score") {
      score_node_ = &value;
    } else if (key == "scalars") {
      read_scalars(source_, value, spec_.declarations);
      for (const YamlEntry& declared : value.entries)
        positions_["scalars." + declared.key] = declared.key_position;
    } else if (key == "tensors") {
      read_tensors(source_, value, spec_.declarations);
      for (const YamlEntry& declared : value.entries)
        positions_["tensors." + declared.key] = declared.key_position;
    } else {
      fail_unknown_key(entry, "", spec_keys);
    }
  }

  std::string read_string(const YamlNode& node, std::string_view field) const {
    if (node.kind != Kind::scalar) fail_value(node, field, "a text");
    return node.text;
  }

  template <typename Word>
  Word read_word(const YamlNode& node, std::string_view field, std::initializer_list<Word> words,
                 std::string_view note = {}) const {
    std::vector<std::string_view> names;
    for (Word word : words) {
      if (node.kind == Kind::scalar && node.text == name_of(word)) return word;
      names.push_back(name_of(word));
    }
    fail_value(node, field, fmt::format("one of {}{}", joined(names), note),
               node.kind == Kind::scalar ? nearest(node.text, names) : "");
  }

  bool read_flag(const YamlNode& node, std::string_view field, std::string_view note = {}) const {
    bool plain = node.kind == Kind::scalar && !node.quoted;
    if (plain && node.text == "true") return true;
    if (plain && node.text == "false") return false;
    fail_value(node, field, fmt::format("true or false{}", note));
  }

  int64_t read_int64(const YamlNode& node, const IntegerRule& rule, std::string_view alternative = {}) const {
    std::string expected = description(rule) + std::string(alternative);
    if (node.kind != Kind::scalar) fail_value(node, rule.field, expected);
    if (node.quoted) fail_value(node, rule.field, expected + " without quotation marks");
    if (has_leading_zero(node.text)) fail_value(node, rule.field, expected + " without leading zeros");
    std::optional<int64_t> value = integer_in(node.text);
    if (!value && is_digits(node.text)) {
      bool negative = node.text.starts_with('-');
      fail_value(node, rule.field, expected, fmt::format("{}", negative ? rule.low : rule.high));
    }
    if (!value) fail_value(node, rule.field, expected);
    if (std::optional<SpecProblem> problem = check(rule, *value)) {
      problem->expected = expected;
      fail(node, problem->message());
    }
    return *value;
  }

  /// For rules whose limits fit an int.
  int read_integer(const YamlNode& node, const IntegerRule& rule, std::string_view alternative = {}) const {
    return static_cast<int>(read_int64(node, rule, alternative));
  }

  double read_number(const YamlNode& node, const NumberRule& rule, std::string_view alternative = {}) const {
    std::string expected = description(rule) + std::string(alternative);
    if (node.kind != Kind::scalar) fail_value(node, rule.field, expected);
    if (node.quoted) fail_value(node, rule.field, expected + " without quotation marks");
    const char* end = node.text.data() + node.text.size();
    double value = 0;
    auto result = std::from_chars(node.text.data(), end, value);
    bool decimal = node.text.find_first_not_of("0123456789+-.eE") == std::string::npos;  // no inf, nan
    if (result.ec != std::errc() || result.ptr != end || !decimal) fail_value(node, rule.field, expected);
    if (std::optional<SpecProblem> problem = check(rule, value)) {
      problem->expected = expected;
      fail(node, problem->message());
    }
    return value;
  }

  void read_head_dim(const YamlNode& node) {
    if (node.kind != Kind::map) {
      int size = read_integer(node, head_dim_rule, ", or {qk: …, v: …}");
      spec_.head_dim = {size, size};
      return;
    }
    bool has_qk = false, has_v = false;
    for (const YamlEntry& entry : node.entries) {
      if (entry.key == "qk") {
        spec_.head_dim.qk = read_integer(entry.value, head_dim_qk_rule);
        has_qk = true;
      } else if (entry.key == "v") {
        spec_.head_dim.v = read_integer(entry.value, head_dim_v_rule);
        has_v = true;
      } else {
        fail_unknown_key(entry, "head_dim", head_dim_keys);
      }
    }
    if (!has_qk || !has_v) fail(node, "head_dim is incomplete; expected both keys: {qk: …, v: …}");
  }

  DataType read_data_type(const YamlNode& node, std::string_view field, std::string_view note = {}) const {
    return read_word<DataType>(node, field, {DataType::fp16, DataType::bf16, DataType::e4m3, DataType::e5m2},
                               note);
  }

  void read_dtype(const YamlNode& node) {
    if (node.kind != Kind::map) {
      DataType type = read_data_type(node, "dtype", ", or {q: …, kv: …, out: …}");
      spec_.dtype = {type, type, type};
      return;
    }
    std::map<std::string_view, DataType> types;
    for (const YamlEntry& entry : node.entries) {
      auto key = std::find(dtype_keys.begin(), dtype_keys.end(), entry.key);
      if (key == dtype_keys.end()) fail_unknown_key(entry, "dtype", dtype_keys);
      types[*key] = read_data_type(entry.value, fmt::format("dtype.{}", *key));
    }
    if (types.size() != dtype_keys.size()) {
      fail(node, "dtype is incomplete; expected all three keys: {q: …, kv: …, out: …}");
    }
    spec_.dtype = {types["q"], types["kv"], types["out"]};
  }

  void read_mask(const YamlNode& node) {
    static constexpr std::string_view valid =
        "one of none, causal, causal_top_left, {window: [left, right]}, or an expression such as \"q >= kv\"";
    if (node.kind == Kind::map) return read_mask_map(node);
    if (node.kind != Kind::scalar) fail_value(node, "mask", valid);
    if (node.text == "none") {
      spec_.mask.kind = Mask::Kind::none;
    } else if (node.text == "causal") {
      spec_.mask.kind = Mask::Kind::causal;
    } else if (node.text == "causal_top_left") {
      spec_.mask.kind = Mask::Kind::causal_top_left;
    } else if (looks_like_expression(node.text)) {
      spec_.mask.kind = Mask::Kind::expression;
      mask_node_ = &node;  // read when all declarations are known
    } else {
      static constexpr std::string_view words[] = {"none", "causal", "causal_top_left",
                                                   "{window: [left, right]}"};
      bool window = node.text == "window";
      fail_value(node, "mask", valid, window ? words[3] : nearest(node.text, words));
    }
  }

  void read_mask_map(const YamlNode& node) {
    const YamlNode *rest = nullptr, *window = nullptr;
    for (const YamlEntry& entry : node.entries) {
      if (entry.key == "window") {
        read_window(entry.value);
        window = &entry.value;
      } else if (entry.key == "blocks" && !spec_.mask.blocks) {
        read_mask_blocks(entry.value);
      } else if (entry.key == "with") {
        rest = &entry.value;
      } else {
        fail_unknown_key(entry, "mask", mask_keys);
      }
    }
    if (node.entries.empty())
      fail(node, "mask: an empty map; expected {window: [left, right]} or {blocks: {m: …, n: …}}");
    if (window && node.entries.size() > 1) {
      fail(*window,
           "mask.window: beside other keys; expected {blocks: {m: …, n: …}, with: {window: [left, right]}}");
    }
    if (!rest) return;
    if (!spec_.mask.blocks)
      fail(*rest, "mask.with: without blocks; expected {blocks: {m: …, n: …}, with: causal}");
    const bool window_alone =
        rest->kind == Kind::map && rest->entries.size() == 1 && rest->entries[0].key == "window";
    if (rest->kind == Kind::map && !window_alone) {
      fail(*rest,
           "mask.with: expected another mask, such as causal, {window: [left, right]} or an expression");
    }
    read_mask(*rest);
  }

  void read_window(const YamlNode& sides) {
    if (sides.kind != Kind::sequence || sides.items.size() != 2) {
      fail(sides, "mask.window: expected two sides, [left, right], each an integer or inf");
    }
    positions_["mask.window"] = sides.position;
    spec_.mask.kind = Mask::Kind::window;
    spec_.mask.left = read_side(sides.items[0]);
    spec_.mask.right = read_side(sides.items[1]);
  }

  void read_mask_blocks(const YamlNode& node) {
    Mask::Blocks blocks;
    if (node.kind != Kind::map) fail_value(node, "mask.blocks", "a map of m and n, such as {m: 64, n: 64}");
    for (const YamlEntry& entry : node.entries) {
      if (entry.key == "m") {
        blocks.m = read_integer(entry.value, mask_block_m_rule);
      } else if (entry.key == "n") {
        blocks.n = read_integer(entry.value, mask_block_n_rule);
      } else {
        fail_unknown_key(entry, "mask.blocks", mask_block_keys);
      }
    }
    if (blocks.m == 0 || blocks.n == 0) {
      fail(node, "mask.blocks is incomplete; expected both keys: {m: …, n: …}");
    }
    spec_.mask.blocks = blocks;
  }

  int64_t read_side(const YamlNode& node) const {
    bool unlimited = node.kind == Kind::scalar && !node.quoted && node.text == "inf";
    return unlimited ? Mask::unlimited : read_int64(node, window_rule, ", or inf for an unlimited side");
  }

  void read_blocks(const YamlNode& node) {
    if (node.kind == Kind::scalar && node.text == "auto") return;
    if (node.kind != Kind::map) {
      fail_value(
          node, "blocks", "auto, or a map with any of " + joined(block_keys),
          node.kind == Kind::scalar ? nearest(node.text, std::array<std::string_view, 1>{"auto"}) : "");
    }
    BlockRequest& blocks = spec_.blocks;
    for (const YamlEntry& entry : node.entries) {
      if (entry.key == "family") {
        blocks.family = read_word<Family>(entry.value, "blocks.family", {Family::sm80, Family::sm90});
      } else if (entry.key == "ping_pong") {
        blocks.ping_pong = read_flag(entry.value, "blocks.ping_pong");
      } else if (entry.key == "pack_group") {
        blocks.pack_group = read_integer(entry.value, block_pack_group_rule);
      } else if (entry.key == "cluster") {
        blocks.cluster = read_integer(entry.value, block_cluster_rule);
      } else if (entry.key == "order") {
        blocks.order = read_string(entry.value, "blocks.order");
      } else if (entry.key == "m") {
        blocks.m = read_integer(entry.value, block_m_rule);
      } else if (entry.key == "n") {
        blocks.n = read_integer(entry.value, block_n_rule);
      } else if (entry.key == "stages") {
        blocks.stages = read_integer(entry.value, block_stages_rule);
      } else if (entry.key == "warps") {
        blocks.warps = read_integer(entry.value, block_warps_rule);
      } else if (entry.key == "query_in_registers") {
        blocks.query_in_registers = read_flag(entry.value, "blocks.query_in_registers");
      } else {
        fail_unknown_key(entry, "blocks", block_keys);
      }
    }
  }

  void read_softmax_scale(const YamlNode& node) {
    spec_.softmax_scale_at_launch = node.kind == Kind::scalar && node.text == "launch";
    if (spec_.softmax_scale_at_launch) return;
    spec_.softmax_scale = read_number(node, softmax_scale_rule, ", or `launch`");
  }

  void read_rope(const YamlNode& node) {
    bool boolean = node.kind == Kind::scalar && node.text == "true";
    if (boolean) {
      fail(node,
           "rope: true does not say how elements are paired; expected interleaved (2i with 2i + 1) or "
           "half (i with i + head_dim / 2)");
    }
    spec_.rope = read_word<Rope>(node, "rope", {Rope::none, Rope::interleaved, Rope::half});
  }

  YamlSource source_;
  std::string_view file_;
  AttentionSpec spec_;
  const YamlNode* mask_node_ = nullptr;
  const YamlNode* score_node_ = nullptr;
  std::map<std::string, SourcePosition, std::less<>> positions_;  // of the values, by field
};

}  // namespace

AttentionSpec parse_spec(std::string_view yaml, std::string_view file) {
  return SpecReader(yaml, file).read(parse_yaml(yaml, file));
}

}  // namespace tilewright
