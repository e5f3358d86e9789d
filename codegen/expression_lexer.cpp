#include "codegen/expression_lexer.h"

#include <array>
#include <string>

#include "codegen/expression.h"

namespace tilewright {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

constexpr std::array<std::string_view, 21> symbols = {"||", "&&", "==", "!=", "<=", ">=", "<",
                                                      ">",  "+",  "-",  "*",  "/",  "%",  "!",
                                                      "?",  ":",  "(",  ")",  "[",  "]",  ","};

/// What was probably meant by a character that the language does not have.
std::string advice(std::string_view rest) {
  const char c = rest[0];
  if (c == '&') return "; expected `&&`";
  if (c == '|') return "; expected `||`";
  if (c == '=') return "; expected `==`";
  if (c == '^') return "; a power is written pow(x, y)";
  if (c == '.') return "; a number is written 0.5";
  return "";
}

}  // namespace

Token Lexer::take(Token::Kind kind, size_t length) {
  const Token token{kind, text_.substr(at_, length), at_};
  at_ += length;
  return token;
}

Token Lexer::take_number() {
  size_t end = at_;
  bool fraction = false;
  const auto digits = [&] {
    const size_t start = end;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    return end > start;
  };
  digits();
  if (end < text_.size() && text_[end] == '.') {
    fraction = true;
    ++end;
    digits();
  }
  if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
    fraction = true;
    ++end;
    if (end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
    if (!digits()) throw ExpressionError("the number's exponent has no digits; expected such as 1e-3", at_);
  }
  if (end < text_.size() && (is_letter(text_[end]) || text_[end] == '.'))
    throw ExpressionError("a number runs into `" + std::string(1, text_[end]) +
                              "`; expected decimal digits, such as 4096 or 0.5",
                          end);
  return take(fraction ? Token::Kind::number : Token::Kind::integer, end - at_);
}

Token Lexer::next() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  if (at_ == text_.size()) return {Token::Kind::end, {}, at_};
  const char c = text_[at_];
  if (is_digit(c)) return take_number();
  if (is_letter(c)) {
    size_t end = at_;
    while (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) ++end;
    return take(Token::Kind::word, end - at_);
  }
  const std::string_view rest = text_.substr(at_);
  for (std::string_view symbol : symbols)
    if (rest.starts_with(symbol)) return take(Token::Kind::symbol, symbol.size());
  const bool printable = c > 0x20 && c < 0x7F;
  throw ExpressionError((printable ? "`" + std::string(1, c) + "` is not part of the language"
                                   : "this byte is not part of the language") +
                            advice(rest),
                        at_);
}

}  // namespace tilewright
