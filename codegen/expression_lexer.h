// Expression text as tokens.
#pragma once

#include <string_view>

namespace tilewright {

struct Token {
  enum class Kind { end, integer, number, word, symbol };
  Kind kind = Kind::end;
  std::string_view text;  // "" at the end
  size_t offset = 0;
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  /// Throws ExpressionError for characters that begin no token and for numbers that run into letters.
  Token next();

 private:
  Token take(Token::Kind kind, size_t length);
  Token take_number();

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace tilewright
