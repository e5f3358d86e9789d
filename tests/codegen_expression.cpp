// The expression language: what parses, what it means, and what is said about what does not.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "codegen/expression.h"
#include "codegen/expression_evaluate.h"
#include "tests/support/random_expression.h"

namespace tilewright {
namespace {

Declarations declared() {
  Declarations declarations;
  declarations.scalars = {{"window", ScalarType::integer}, {"cap", ScalarType::number}};
  declarations.tensors = {{"document", parse_tensor_type("int32[kv]")},
                          {"slope", parse_tensor_type("float32[head]")},
                          {"keep", parse_tensor_type("bool[batch, kv]")},
                          {"bias", parse_tensor_type("bf16[batch, head, q, kv]")},
                          {"table", parse_tensor_type("fp16[head, 32]")}};
  return declarations;
}

std::string canonical_mask(const std::string& text) {
  return to_text(parse_mask(text, declared()));
}
std::string canonical_score(const std::string& text) {
  return to_text(parse_score(text, declared()));
}

/// "message @ offset" of what parsing throws.
std::string error_of(const std::string& text, bool mask = true) {
  try {
    const Declarations declarations = declared();
    mask ? parse_mask(text, declarations) : parse_score(text, declarations);
    return "parsed";
  } catch (const ExpressionError& error) {
    return error.what() + std::string(" @ ") + std::to_string(error.offset());
  }
}

TEST(Expression, CanonicalTextHasOneSpelling) {
  EXPECT_EQ(canonical_mask("q>=kv"), "q >= kv");
  EXPECT_EQ(canonical_mask("((q) >= (kv))  \n && (q - kv < window)"), "q >= kv && q - kv < window");
  EXPECT_EQ(canonical_mask("q - (kv - 1) > q - kv - 1"), "q - (kv - 1) > q - kv - 1");
  EXPECT_EQ(canonical_mask("(q >= kv && q < 5) || kv == 1"), "q >= kv && q < 5 || kv == 1");
  EXPECT_EQ(canonical_mask("q >= kv && (q < 5 || kv == 1)"), "q >= kv && (q < 5 || kv == 1)");
  EXPECT_EQ(canonical_mask("document[ q ]==document[kv]"), "document[q] == document[kv]");
  EXPECT_EQ(canonical_mask("!keep[batch,kv]"), "!keep[batch, kv]");
  EXPECT_EQ(canonical_mask("!(q < kv)"), "!(q < kv)");
  EXPECT_EQ(canonical_mask("(q < 2 ? true : kv > 2)"), "q < 2 ? true : kv > 2");
  EXPECT_EQ(canonical_mask("-(-q) < - kv"), "--q < -kv");
  EXPECT_EQ(canonical_mask("q / 4 % 3 == kv % (8 / 3)"), "q / 4 % 3 == kv % (8 / 3)");
}

TEST(Expression, IntsBesideFloatsAreConvertedVisibly) {
  EXPECT_EQ(canonical_score("score - slope[head] * abs(q - kv)"), "score - slope[head] * float(abs(q - kv))");
  EXPECT_EQ(canonical_score("score * 2"), "score * 2.0");
  EXPECT_EQ(canonical_score("q"), "float(q)");
  EXPECT_EQ(canonical_score("q / 2 * 1.0"), "float(q / 2) * 1.0");
  EXPECT_EQ(canonical_score("float(q) / 2"), "float(q) / 2.0");
  EXPECT_EQ(canonical_score("float(cap) + floor(q)"), "cap + float(q)");
  EXPECT_EQ(canonical_score("q > kv ? 1 : score"), "q > kv ? 1.0 : score");
  EXPECT_EQ(canonical_score("max(score, 0)"), "max(score, 0.0)");
  EXPECT_EQ(canonical_score("q >= kv ? score : -inf"), "q >= kv ? score : -inf");
}

TEST(Expression, NumbersAreFp32) {
  EXPECT_EQ(canonical_score("score * 0.1000000000001"), "score * 0.1");
  EXPECT_EQ(canonical_score("score * 1e3"), "score * 1000.0");
  EXPECT_EQ(canonical_score("score * 0.000"), "score * 0.0");
  EXPECT_EQ(canonical_score("score * 1e-45"), "score * 1e-45");
  EXPECT_EQ(canonical_score("score + 16777217"), "score + 16777216.0");
  EXPECT_EQ(error_of("score * 1e39", false),
            "this float is outside of fp32; expected 1e-45 to 3.4e38, or inf @ 8");
  EXPECT_EQ(error_of("score * 1e-60", false),
            "this float is outside of fp32; expected 1e-45 to 3.4e38, or inf @ 8");
}

TEST(Expression, ErrorsPointAtTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"q >= kv && q - kv < windw",
       "unknown name 'windw'; expected q, kv, head, kv_head, batch, seqlen_q, seqlen_kv, cap, window, bias, "
       "document, "
       "keep, slope, table, or a declaration in `scalars:` or `tensors:`; nearest: window @ 20"},
      {"docment[q] == 1",
       "unknown tensor 'docment'; expected one declared in `tensors:`; nearest: document @ 0"},
      {"ads(q) < 3",
       "unknown function 'ads'; expected one of abs, min, max, exp, log, tanh, floor, pow, float; nearest: "
       "abs @ 0"},
      {"score > 0.0", "a mask does not see the score; expected positions, heads, scalars and tensors @ 0"},
      {"", "the expression is empty; expected such as `q >= kv` @ 0"},
      {"q >=", "the expression ends here; expected an operand: a name, a number or `(` @ 4"},
      {"q >= kv kv", "found 'kv'; expected an operator or the end @ 8"},
      {"q >= kv and q < 2", "`and` is written `&&` @ 8"},
      {"not q < 2",
       "unknown name 'not'; expected q, kv, head, kv_head, batch, seqlen_q, seqlen_kv, cap, window, bias, "
       "document, keep, slope, table, or a declaration in `scalars:` or `tensors:` @ 0"},
      {"q = kv", "`=` is not part of the language; expected `==` @ 2"},
      {"q > 2 & kv > 2", "`&` is not part of the language; expected `&&` @ 6"},
      {"q > 2 | kv > 2", "`|` is not part of the language; expected `||` @ 6"},
      {"q ^ 2 > kv", "`^` is not part of the language; a power is written pow(x, y) @ 2"},
      {"q < .5", "`.` is not part of the language; a number is written 0.5 @ 4"},
      {"q < 0x10", "a number runs into `x`; expected decimal digits, such as 4096 or 0.5 @ 5"},
      {"q < 1e", "the number's exponent has no digits; expected such as 1e-3 @ 4"},
      {"q < \xc3\xa9", "this byte is not part of the language @ 4"},
      {"kv <= q < 5",
       "`<` has a bool here; expected an int or a float; a chain a < b < c is written a < b && b < c @ 0"},
      {"q && kv", "`&&` has an int here; expected a bool @ 0"},
      {"(q > 1) + 1 > 2", "`+` has a bool here; expected an int or a float @ 0"},
      {"q == (kv > 2)", "`==` compares an int with a bool; expected two bools or two numbers @ 2"},
      {"q % 2.0 == 0", "`%` has a float here; expected an int @ 4"},
      {"-(q > 1)", "`-` has a bool here; expected an int or a float @ 1"},
      {"!q", "`!` has an int here; expected a bool @ 1"},
      {"+q > 1", "`+` has no left side; expected an operand @ 0"},
      {"q ? true : false", "the condition of ?: is an int; expected a bool @ 0"},
      {"q > 1 ? true : 2", "the sides of ?: are a bool and an int; expected two bools or two numbers @ 15"},
      {"q > 1 ? true", "the expression ends here; expected `:` @ 12"},
      {"q", "a mask says yes or no and this is an int; expected a bool, such as `q >= kv` @ 0"},
      {"document == 1", "`document` is a tensor, int32[kv]; expected an index for each dimension in [ ] @ 9"},
      {"document[batch, kv] == 1", "`document` has 2 indices; expected 1, as declared: int32[kv] @ 0"},
      {"document[1.5] == 1", "an index of `document` is a float; expected an int, such as floor(x) @ 9"},
      {"window[kv] == 1", "`window` is a scalar; expected no index, or a declaration in `tensors:` @ 0"},
      {"abs == 1", "`abs` is a function; expected `(` @ 4"},
      {"abs(q, kv) == 1", "`abs` has 2 arguments; expected 1 @ 0"},
      {"min(q) == 1", "`min` has 1 arguments; expected 2 @ 0"},
      {"abs(q > 1) == 1", "`abs` has a bool here; expected an int or a float @ 4"},
      {"min(q kv) == 1", "found 'kv'; expected `,` or `)` @ 6"},
      {"q / 0 == kv / (2 - 2)", "division by zero @ 4"},
      {"q % (2 - 2) == 0", "division by zero @ 4"},
      {"q < 9223372036854775808", "this int is beyond 2^63; ints have 64 bits @ 4"},
      {"q < 9223372036854775807 + 1", "this constant is beyond 2^63; ints have 64 bits @ 24"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(error_of(text), message) << text;
  EXPECT_EQ(error_of("q > kv", false).substr(0, 46), "a score is a number and this is a bool; expect");
}

TEST(Expression, LimitsKeepAbsurdTextsSmall) {
  const auto repeated = [](const std::string& text, int count) {
    std::string result;
    for (int i = 0; i < count; ++i) result += text;
    return result;
  };
  EXPECT_NE(error_of(repeated("(", 10000) + "q" + repeated(")", 10000)).find("expected at most 4096"),
            std::string::npos);
  EXPECT_EQ(error_of(repeated("(", 2000) + "q > 1" + repeated(")", 2000)),
            "nested more than 64 levels deep @ 64");
  EXPECT_NE(error_of(repeated("!", 2000) + "q > 1").find("nested more than 64 levels deep"),
            std::string::npos);
  EXPECT_NE(error_of("q > 1" + repeated(" || q > 1", 200)).find("nested more than 64"), std::string::npos);
  EXPECT_NE(error_of(repeated("q > 1 ? true : ", 200) + "true").find("nested more than 64"),
            std::string::npos);
  EXPECT_NE(error_of(repeated("abs(", 300) + "q").find("nested more than 64"), std::string::npos);
  EXPECT_EQ(error_of(repeated("(", 30) + "q > 1" + repeated(")", 30)), "parsed");
  std::string wide = "q > 1";
  for (int i = 0; i < 8; ++i) wide = "(" + wide + ") || (" + wide + ")";
  EXPECT_NE(error_of(wide).find("over 512 operations"), std::string::npos);
}

TEST(Expression, TensorTypes) {
  EXPECT_EQ(to_text(parse_tensor_type(" bf16 [batch,head , q,kv]")), "bf16[batch, head, q, kv]");
  EXPECT_EQ(to_text(parse_tensor_type("float32[kv_head, 32]")), "float32[kv_head, 32]");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"int3[kv]",
       "found 'int3'; expected an element type, one of bool, int32, float32, fp16, bf16, such as in "
       "int32[kv]; nearest: int32"},
      {"int32", "the type ends here; expected `[` and the dimensions, such as in int32[kv]"},
      {"int32[keys]", "found 'keys'; expected a dimension: one of q, kv, head, kv_head, batch, or a number"},
      {"int32[]", "found ']'; expected a dimension: one of q, kv, head, kv_head, batch, or a number"},
      {"int32[0]", "a dimension of 0 elements; expected 1 to 2^30"},
      {"int32[9999999999999999999]", "a dimension of 9999999999999999999 elements; expected 1 to 2^30"},
      {"int32[1, 2, 3, 4, 5]", "a fifth dimension; expected at most 4"},
      {"int32[q", "the type ends here; expected `,` or `]`"},
      {"int32[q] x", "found 'x'; expected nothing after `]`"},
  };
  for (const auto& [text, message] : cases) {
    try {
      parse_tensor_type(text);
      ADD_FAILURE() << text;
    } catch (const ExpressionError& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, message.size()), message) << text;
    }
  }
}

TEST(Expression, CaretStandsUnderThePlace) {
  EXPECT_EQ(caret_lines("q >= kw", 5), "  q >= kw\n       ^");
  EXPECT_EQ(caret_lines("q >= kv\n&& kw < 1", 11), "  && kw < 1\n     ^");
  EXPECT_EQ(caret_lines("q", 1), "  q\n   ^");
  const std::string lines = caret_lines(std::string(500, 'x') + "Y" + std::string(500, 'x'), 500);
  const size_t second = lines.find('\n') + 1;
  EXPECT_EQ(lines[lines.size() - 1 - second], 'Y');
}

double value_of(const std::string& text, const Environment& environment = {}) {
  const Value value = evaluate(parse_score(text, {}), environment);
  return value.number;
}

TEST(Expression, DivisionRoundsDownAndByZeroIsZero) {
  const Environment at{.q = -7, .kv = 0};
  EXPECT_EQ(value_of("q / 2", at), -4);
  EXPECT_EQ(value_of("q % 2", at), 1);
  EXPECT_EQ(value_of("q / -2", at), 3);
  EXPECT_EQ(value_of("q % -2", at), -1);
  EXPECT_EQ(value_of("-q / 2", at), 3);
  EXPECT_EQ(value_of("q / kv", at), 0);
  EXPECT_EQ(value_of("q % kv", at), 0);
  EXPECT_EQ(floor_divide(INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(floor_modulo(INT64_MIN, -1), 0);
}

TEST(Expression, SpecialValuesAreDefined) {
  const Environment at{.q = 3, .score = 2};
  EXPECT_EQ(value_of("pow(2, q)", at), 8);
  EXPECT_EQ(value_of("pow(0, q)", at), 0);
  EXPECT_EQ(value_of("pow(0, -q)", at), INFINITY);
  EXPECT_EQ(value_of("pow(-2, 0)", at), 1);
  EXPECT_TRUE(std::isnan(value_of("pow(-2, q)", at)));
  EXPECT_EQ(value_of("floor(score / 0)", at), 2147483647);
  EXPECT_EQ(value_of("floor(-score / 0)", at), -2147483648.0);
  EXPECT_EQ(value_of("floor(inf - inf)", at), 0);
  EXPECT_EQ(value_of("floor(-2.5)", at), -3);
  EXPECT_EQ(value_of("q > 2 ? score : inf - inf", at), 2);
}

TEST(Expression, RandomTreesReadBackFromTheirText) {
  RandomExpressions random(1);
  const Declarations declarations = random_declarations();
  for (int trial = 0; trial < 3000; ++trial) {
    const bool is_mask = trial % 2 == 0;
    const int levels = static_cast<int>(random.between(2, 7));
    const Expression tree = is_mask ? random.mask(levels) : random.score(levels);
    const std::string text = to_text(tree);
    const auto parse = is_mask ? parse_mask : parse_score;
    Expression again = tree;
    try {
      again = parse(text, declarations);
    } catch (const ExpressionError& error) {
      // What trees may hold and texts may not: constants that are too large, conditions that are literals are
      // fine.
      const std::string why = error.what();
      ASSERT_TRUE(why.starts_with("this constant is beyond") || why.starts_with("the expression has") ||
                  why.starts_with("division by zero"))
          << text << ": " << why;
      continue;
    }
    ASSERT_EQ(again, tree) << text << "\n" << to_text(again);
    ASSERT_EQ(to_text(again), text);
  }
}

}  // namespace
}  // namespace tilewright
