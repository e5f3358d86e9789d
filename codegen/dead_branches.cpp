#include "codegen/dead_branches.h"

namespace tilewright {
namespace {

// Position behind the bracket that closes the one at `at`.
size_t behind_bracket(std::string_view text, size_t at) {
  int depth = 0;
  do {
    const char c = text[at++];
    if (c == '(' || c == '{' || c == '[') ++depth;
    if (c == ')' || c == '}' || c == ']') --depth;
  } while (depth > 0 && at < text.size());
  return at;
}

bool is_dead(std::string_view condition, const std::map<std::string, bool>& constants) {
  if (condition.find("||") != condition.npos) return false;
  while (true) {
    const size_t end = condition.find(" && ");
    std::string_view term = condition.substr(0, end);
    const bool negated = term.substr(0, 1) == "!";
    if (negated) term.remove_prefix(1);
    const auto found = constants.find(std::string(term));
    if (found != constants.end() && found->second == negated) return true;
    if (end == condition.npos) return false;
    condition.remove_prefix(end + 4);
  }
}

// Position behind the statement at `at`; npos if it is one that is left alone.
size_t statement_end(std::string_view text, size_t at) {
  for (std::string_view keyword : {"if ", "for ", "while ", "do "})
    if (text.substr(at, keyword.size()) == keyword) return text.npos;
  if (text[at] == '{') return behind_bracket(text, at);
  while (at < text.size() && text[at] != ';')
    at = text[at] == '(' || text[at] == '{' || text[at] == '[' ? behind_bracket(text, at) : at + 1;
  return at + 1;
}

}  // namespace

std::string without_dead_branches(std::string_view text, const std::map<std::string, bool>& constants) {
  std::string result;
  size_t copied = 0;
  for (size_t at = 0; (at = text.find(" if (", at)) != text.npos;) {
    const size_t keyword = at + 1, open = at + 4, line = text.rfind('\n', at) + 1;
    at = open;
    if (text.find_first_not_of(' ', line) != keyword) continue;
    const size_t close = behind_bracket(text, open);
    if (!is_dead(text.substr(open + 1, close - open - 2), constants)) continue;
    const size_t body = text.find_first_not_of(" \n", close);
    const size_t end = statement_end(text, body);
    if (end == text.npos) continue;
    const size_t next = text.find_first_not_of(" \n", end);
    if (next != text.npos && text.substr(next, 4) == "else") continue;
    result += text.substr(copied, line - copied);
    copied = text.find('\n', end) + 1;
    at = copied - 1;
  }
  return result + std::string(text.substr(copied));
}

}  // namespace tilewright
