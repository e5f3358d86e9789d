// The derivative by score: its form for the scores that models use, and finite differences for random ones.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "codegen/expression_derivative.h"
#include "codegen/expression_evaluate.h"
#include "tests/support/random_expression.h"

namespace tilewright {
namespace {

std::string derivative_of(const std::string& text) {
  return to_text(derivative_by_score(parse_score(text, random_declarations())));
}

TEST(Derivative, IsSimple) {
  EXPECT_EQ(derivative_of("score"), "1.0");
  EXPECT_EQ(derivative_of("q"), "0.0");
  EXPECT_EQ(derivative_of("score * 2"), "2.0");
  EXPECT_EQ(derivative_of("score - slope[head] * abs(q - kv)"), "1.0");
  EXPECT_EQ(derivative_of("score + bias[0, head, q, kv]"), "1.0");
  EXPECT_EQ(derivative_of("cap * tanh(score / cap)"), "1.0 - tanh(score / cap) * tanh(score / cap)");
  EXPECT_EQ(derivative_of("q >= kv ? score : -inf"), "q >= kv ? 1.0 : 0.0");
  EXPECT_EQ(derivative_of("q >= kv ? score : score + 1"), "1.0");
  EXPECT_EQ(derivative_of("score * score"), "score + score");
  EXPECT_EQ(derivative_of("pow(score, 3)"), "3.0 * pow(score, 2.0)");
  EXPECT_EQ(derivative_of("pow(score, 2)"), "2.0 * score");
  EXPECT_EQ(derivative_of("exp(-score)"), "-exp(-score)");
  EXPECT_EQ(derivative_of("log(score)"), "1.0 / score");
  EXPECT_EQ(derivative_of("1 / score"), "-(1.0 / (score * score))");
  EXPECT_EQ(derivative_of("max(score, 0)"), "score > 0.0 ? 1.0 : 0.0");
  EXPECT_EQ(derivative_of("abs(score)"), "score < 0.0 ? -1.0 : 1.0");
  EXPECT_EQ(derivative_of("floor(score) + score * float(floor(score))"), "float(floor(score))");
}

/// Whether all parts are moderate, and bases of powers positive: what is infinite or NaN beside the place has
/// no derivative there.
bool is_tame(const Expression& expression, const Environment& environment) {
  for (const Expression& operand : expression.operands())
    if (!is_tame(operand, environment)) return false;
  const bool is_power = expression.operation() == Operation::pow;
  if (is_power && evaluate(expression.operand(0), environment).number <= 0) return false;
  return expression.type() != ValueType::number || std::fabs(evaluate(expression, environment).number) < 1e6;
}

// Central differences of two steps must agree with each other, otherwise the place is a jump or a bend, or
// fp64 has not digits enough.
TEST(Derivative, AgreesWithFiniteDifferences) {
  RandomExpressions random(1);
  int checked = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    const Expression score = random.score(static_cast<int>(random.between(2, 6)));
    if (!score.uses(ExpressionVariable::score)) continue;
    const Expression derivative = derivative_by_score(score);
    const RandomData data(random, 20, 20);
    const int64_t q = random.below(20), kv = random.below(20);
    const double at = random.real(-3, 3);
    const auto value = [&](const Expression& e, double s) {
      return evaluate(e, data.at(q, kv, 1, 1, s)).number;
    };
    const auto slope = [&](double h) { return (value(score, at + h) - value(score, at - h)) / (2 * h); };
    const double coarse = slope(2e-5), fine = slope(1e-5), found = value(derivative, at);
    const double size = std::max(1.0, std::fabs(fine));
    if (!is_tame(score, data.at(q, kv, 1, 1, at)) || !(std::fabs(coarse - fine) < 1e-7 * size)) continue;
    ++checked;
    ASSERT_NEAR(found, fine, 1e-5 * size)
        << to_text(score) << "\nhas the derivative " << to_text(derivative) << "\nat " << at;
  }
  EXPECT_GT(checked, 1500);
}

TEST(Derivative, StaysSmall) {
  RandomExpressions random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const Expression score = random.score(8);
    EXPECT_LE(derivative_by_score(score).size(), 8 * score.size() * score.height()) << to_text(score);
  }
}

}  // namespace
}  // namespace tilewright
