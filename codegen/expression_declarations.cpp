// Names and types that a spec declares for its expressions.
#include <algorithm>
#include <charconv>

#include "codegen/expression.h"
#include "codegen/expression_lexer.h"
#include "codegen/expression_words.h"
#include "codegen/nearest.h"
#include "codegen/spec_rules.h"
#include "codegen/spec_yaml.h"

namespace tilewright {
namespace {

constexpr size_t max_name = 64;

template <typename Table>
std::vector<std::string_view> words_of(const Table& table) {
  std::vector<std::string_view> words;
  for (const auto& entry : table) words.push_back(entry.first);
  return words;
}

[[noreturn]] void fail(const Token& token, std::string what, const std::vector<std::string_view>& words) {
  const std::string_view near = nearest(token.text, words);
  what = (token.kind == Token::Kind::end ? "the type ends here" : "found " + quoted_for_message(token.text)) +
         "; expected " + what;
  if (!near.empty()) what += "; nearest: " + std::string(near);
  throw ExpressionError(what, token.offset);
}

Dimension parse_dimension(const Token& token) {
  for (const auto& [word, extent] : extent_words)
    if (token.text == word) return {extent, 0};
  if (token.kind == Token::Kind::integer) {
    int64_t size = 0;
    const char* end = token.text.data() + token.text.size();
    const bool valid = std::from_chars(token.text.data(), end, size).ec == std::errc();
    if (valid && size >= 1 && size <= (int64_t{1} << 30)) return {Dimension::Extent::fixed, size};
    throw ExpressionError("a dimension of " + std::string(token.text) + " elements; expected 1 to 2^30",
                          token.offset);
  }
  const std::vector<std::string_view> words = words_of(extent_words);
  fail(token, "a dimension: one of " + joined(words) + ", or a number", words);
}

}  // namespace

TensorType parse_tensor_type(std::string_view text) {
  Lexer lexer(text);
  TensorType type;
  Token token = lexer.next();
  const auto* element = std::find_if(element_words.begin(), element_words.end(),
                                     [&](const auto& entry) { return entry.first == token.text; });
  const std::vector<std::string_view> words = words_of(element_words);
  if (element == element_words.end())
    fail(token, "an element type, one of " + joined(words) + ", such as in int32[kv]", words);
  type.element = element->second;
  token = lexer.next();
  if (token.text != "[") fail(token, "`[` and the dimensions, such as in int32[kv]", {});
  do {
    token = lexer.next();
    if (type.dimensions.size() == 4)
      throw ExpressionError("a fifth dimension; expected at most 4", token.offset);
    type.dimensions.push_back(parse_dimension(token));
    token = lexer.next();
  } while (token.text == ",");
  if (token.text != "]") fail(token, "`,` or `]`", {});
  token = lexer.next();
  if (token.kind != Token::Kind::end) fail(token, "nothing after `]`", {});
  return type;
}

std::string name_problem(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto valid = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > max_name || !letter(name[0]) ||
      !std::all_of(name.begin(), name.end(), valid))
    return quoted_for_message(name) + " is no name; expected letters, digits and _, at most " +
           std::to_string(max_name);
  const auto is_word = [&](const auto& table) {
    return std::any_of(table.begin(), table.end(), [&](const auto& entry) { return entry.first == name; });
  };
  const bool literal = std::find(literal_words.begin(), literal_words.end(), name) != literal_words.end();
  if (is_word(variable_words) || is_word(function_words) || literal)
    return "`" + std::string(name) + "` is a word of the expression language; expected another name";
  return "";
}

std::string caret_lines(std::string_view text, size_t offset) {
  constexpr size_t longest = 100;  // of the line shown, around the place
  offset = std::min(offset, text.size());
  size_t begin = offset;
  while (begin > 0 && text[begin - 1] != '\n') --begin;
  size_t end = std::min(text.find('\n', offset), text.size());
  std::string line, before, after;
  if (end - begin > longest) {
    const size_t from = offset - begin > longest / 2 ? offset - longest / 2 : begin;
    if (from > begin) before = "...";
    if (end - from > longest) after = "...";
    begin = from;
    end = std::min(end, from + longest);
  }
  for (char c : text.substr(begin, end - begin)) line += c >= 0x20 && c < 0x7F ? c : '?';
  return "  " + before + line + after + "\n  " + std::string(before.size() + offset - begin, ' ') + "^";
}

}  // namespace tilewright
