#include "codegen/template_items.h"

#include <algorithm>

#include "codegen/error.h"

namespace tilewright {
namespace {

bool is_identifier_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_identifier(char c) {
  return is_identifier_start(c) || (c >= '0' && c <= '9');
}

// Position after the comment or string that starts at `at`; `at` itself if none does.
size_t skip_opaque(std::string_view text, size_t at) {
  if (text.substr(at, 2) == "//") {
    const size_t end = text.find('\n', at);
    return end == std::string_view::npos ? text.size() : end;
  }
  if (text[at] == '"' || text[at] == '\'') {
    size_t end = at + 1;
    while (end < text.size() && text[end] != text[at]) end += text[end] == '\\' ? 2 : 1;
    return end + 1;
  }
  return at;
}

// Position behind the declaration that starts at `at`: a `;` or a closing brace outside all brackets. A
// primitive has two bodies.
size_t declaration_end(std::string_view text, size_t at) {
  int depth = 0;
  int bodies = text.substr(at).find("PRIMITIVE ") < text.substr(at).find_first_of("({") ? 2 : 1;
  while (at < text.size()) {
    if (const size_t next = skip_opaque(text, at); next != at) {
      at = next;
      continue;
    }
    const char c = text[at++];
    if (c == '{' || c == '(' || c == '[') ++depth;
    if (c == '}' || c == ')' || c == ']') --depth;
    if (depth != 0) continue;
    if (c == ';') return at;
    if (c == '}' && --bodies == 0) return at < text.size() && text[at] == ';' ? at + 1 : at;
  }
  throw Error(ErrorKind::internal, "a template declaration does not end: " + std::string(text.substr(0, 80)));
}

std::vector<std::string> identifiers_of(std::string_view text) {
  std::vector<std::string> found;
  for (size_t at = 0; at < text.size();) {
    if (const size_t next = skip_opaque(text, at); next != at) {
      at = next;
    } else if (is_identifier_start(text[at])) {
      const size_t begin = at;
      while (at < text.size() && is_identifier(text[at])) ++at;
      found.emplace_back(text.substr(begin, at - begin));
    } else {
      const bool number = text[at] >= '0' && text[at] <= '9';  // its suffix (0u, 1.0f) is no identifier
      do ++at;
      while (number && at < text.size() && (is_identifier(text[at]) || text[at] == '.'));
    }
  }
  return found;
}

// The declared name: before the brace of a struct, which attributes may precede; before `;` of a typedef,
// before `=` of a constant, before `(` of a function.
std::string declared_name(std::string_view declaration) {
  const std::vector<std::string> words = identifiers_of(declaration);
  if (words[0] == "struct" || words[0] == "enum")
    return identifiers_of(declaration.substr(0, declaration.find('{'))).back();
  size_t end = words[0] == "typedef" ? declaration.rfind(';') : std::string_view::npos;
  if (end == std::string_view::npos) {
    size_t at = 0;
    // launch bounds and attributes take brackets too: they are not the name
    for (std::string_view attribute : {"__launch_bounds__"})
      if (const size_t found = declaration.find(attribute); found != std::string_view::npos)
        at = declaration.find(')', found) + 1;
    end = declaration.find_first_of("(=", at);
    if (declaration.substr(0, 9) == "template ") end = declaration.find('(', declaration.find('>'));
    if (end == std::string_view::npos) end = declaration.rfind(';');
  }
  while (end > 0 && !is_identifier(declaration[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && is_identifier(declaration[begin - 1])) --begin;
  return std::string(declaration.substr(begin, end - begin));
}

void replace_first(std::string& text, std::string_view from, std::string_view to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
}

std::string primitive_text(std::string_view declaration, Backend backend) {
  const size_t device = declaration.find("\nDEVICE "), simulator = declaration.find("\nSIMULATOR ");
  if (device == std::string_view::npos || simulator == std::string_view::npos)
    throw Error(ErrorKind::internal, "a primitive lacks a body: " + std::string(declaration.substr(0, 80)));
  std::string signature(declaration.substr(0, device));
  std::string_view body = backend == Backend::device ? declaration.substr(device + 8, simulator - device - 8)
                                                     : declaration.substr(simulator + 11);
  replace_first(signature, "PRIMITIVE", "__device__ __forceinline__");
  bool wants_site = false;
  for (const std::string& word : identifiers_of(body)) wants_site |= word == "site";
  if (wants_site) {
    const bool empty = signature.substr(signature.size() - 2) == "()";
    signature.pop_back();
    signature += empty ? "int site = __builtin_LINE())" : ", int site = __builtin_LINE())";
  }
  return signature + " " + std::string(body);
}

size_t title_end(std::string_view text) {
  size_t at = 0;
  while (text.substr(at, 2) == "//") at = text.find('\n', at) + 1;
  return at > 0 && at < text.size() && text[at] == '\n' ? at : 0;
}

}  // namespace

std::string template_title(std::string_view text) {
  std::string title;
  for (size_t at = 0, end = title_end(text); at < end;) {
    const size_t line_end = text.find('\n', at);
    title += (title.empty() ? "" : " ") + std::string(text.substr(at + 3, line_end - at - 3));
    at = line_end + 1;
  }
  const size_t stop = title.find_first_of(".:");
  return title.substr(0, stop);
}

std::vector<std::string> identifiers_in(std::string_view text) {
  std::vector<std::string> identifiers = identifiers_of(text);
  std::sort(identifiers.begin(), identifiers.end());
  identifiers.erase(std::unique(identifiers.begin(), identifiers.end()), identifiers.end());
  return identifiers;
}

std::vector<TemplateItem> parse_template(std::string_view text, Backend backend) {
  std::vector<TemplateItem> items;
  size_t at = title_end(text);
  std::string above;  // comments and preprocessor lines before the declaration
  while (true) {
    at = text.find_first_not_of('\n', at);
    if (at == std::string_view::npos) break;
    if (text[at] == '#' || text.substr(at, 2) == "//") {
      const size_t end = text.find('\n', at);
      above += std::string(text.substr(at, end - at)) + "\n";
      at = end;
      continue;
    }
    const size_t end = declaration_end(text, at);
    const std::string_view declaration = text.substr(at, end - at);
    const bool primitive = declaration.find("PRIMITIVE ") < declaration.find_first_of("({");
    TemplateItem item;
    item.name = declared_name(declaration);
    item.text = above + (primitive ? primitive_text(declaration, backend) : std::string(declaration)) + "\n";
    item.identifiers = identifiers_in(item.text);
    items.push_back(std::move(item));
    above.clear();
    at = end;
  }
  return items;
}

}  // namespace tilewright
