// The CUDA functions of expressions, compiled for the simulator, against the interpreter: random masks and
// scores on random data. All stand in one source, compiled once.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "codegen/expression_cuda.h"
#include "codegen/expression_derivative.h"
#include "codegen/expression_evaluate.h"
#include "codegen/expression_key_ranges.h"
#include "codegen/template_items.h"
#include "codegen/templates.h"
#include "simulator/host_kernel.h"
#include "simulator/interface.h"
#include "tests/support/random_expression.h"

namespace tilewright {
namespace {

using ranges::TileState;

/// What the compiled functions see of a launch; tensors call back.
struct Scope {
  int head, kv_head, batch, seqlen_q, seqlen_kv;
  int scalar_width, scalar_step;
  float scalar_cap;
  const RandomData* data;
};

/// One call of one expression's functions.
struct Call {
  int which;
  const Scope* scope;
  int q, kv, q1, kv1;
  float score;
  bool mask;
  float value;
  int state;
  ranges::KeyRange keys;
  int low, high;  // row_limits, of masks that have them
};

const char* const scope_text = R"(
struct Scope {
  int head, kv_head, batch, seqlen_q, seqlen_kv;
  int scalar_width, scalar_step;
  float scalar_cap;
  const void* data;
};

struct Positions {
  int q, kv;
};

struct Call {
  int which;
  const Scope* scope;
  int q, kv, q1, kv1;
  float score;
  bool mask;
  float value;
  int state;
  KeyRange keys;
  int low, high;
};

/// Index 0 is the first of four; the answers in fp64, which holds every int32 and float.
static double (*look_up)(const void* data, int tensor, const int* indices);
static void (*look_up_range)(const void* data, int tensor, const IntRange* indices, double* low, double* high);

inline FloatRange float_range(const Scope& scope, int tensor, IntRange a, IntRange b = {}) {
  const IntRange indices[2] = {a, b};
  double low, high;
  look_up_range(scope.data, tensor, indices, &low, &high);
  return {(float)low, (float)high};
}
inline int tensor_document(const Scope& scope, int i) { return (int)look_up(scope.data, 0, &i); }
inline float tensor_slope(const Scope& scope, int i) { return (float)look_up(scope.data, 1, &i); }
inline bool tensor_keep(const Scope& scope, int i, int j) {
  const int indices[2] = {i, j};
  return look_up(scope.data, 2, indices) != 0;
}
inline float tensor_table(const Scope& scope, int i) { return (float)look_up(scope.data, 3, &i); }
inline IntRange tensor_document_range(const Scope& scope, IntRange i) {
  const FloatRange range = float_range(scope, 0, i);
  return {(long long)range.low, (long long)range.high};
}
inline FloatRange tensor_slope_range(const Scope& scope, IntRange i) { return float_range(scope, 1, i); }
inline Truth tensor_keep_range(const Scope& scope, IntRange i, IntRange j) {
  const FloatRange range = float_range(scope, 2, i, j);
  return {range.high != 0, range.low == 0};
}
inline FloatRange tensor_table_range(const Scope& scope, IntRange i) { return float_range(scope, 3, i); }
)";

constexpr const char* tensor_names[] = {"document", "slope", "keep", "table"};
constexpr size_t tensor_ranks[] = {1, 1, 2, 1};

double answer(const void* data, int tensor, const int* indices) {
  const std::vector<int64_t> at(indices, indices + tensor_ranks[tensor]);
  const Value value = static_cast<const RandomData*>(data)->look_up(tensor_names[tensor], at);
  return value.type == ValueType::number ? value.number : static_cast<double>(value.integer);
}

void answer_range(const void* data, int tensor, const ranges::IntRange* indices, double* low, double* high) {
  const std::vector<ranges::IntRange> at(indices, indices + tensor_ranks[tensor]);
  const ValueRange range = static_cast<const RandomData*>(data)->look_up_range(tensor_names[tensor], at);
  const bool number = range.type == ValueType::number, integer = range.type == ValueType::integer;
  *low = number ? range.number.low : integer ? static_cast<double>(range.integer.low) : !range.truth.may_fail;
  *high = number    ? range.number.high
          : integer ? static_cast<double>(range.integer.high)
                    : range.truth.may_hold;
}

std::string all_items(std::string_view file, std::initializer_list<std::string_view> names = {}) {
  for (int i = 0; i < embedded_template_count; ++i) {
    if (embedded_templates[i].file != file) continue;
    std::string text;
    for (const TemplateItem& item : parse_template(embedded_templates[i].text, Backend::simulator))
      if (names.size() == 0 || std::find(names.begin(), names.end(), item.name) != names.end())
        text += item.text;
    return text;
  }
  throw Error(ErrorKind::internal, "no template " + std::string(file));
}

std::string template_text(std::string_view file) {
  for (int i = 0; i < embedded_template_count; ++i)
    if (embedded_templates[i].file == file) return std::string(embedded_templates[i].text);
  return "";
}

std::string in_namespace(char letter, size_t number, const std::string& text) {
  return "namespace " + std::string(1, letter) + std::to_string(number) + " {\n" + text + "}\n";
}

class ExpressionFunctions {
 public:
  ExpressionFunctions(const std::vector<Expression>& masks, const std::vector<Expression>& scores) {
    Source source;
    source.file_name = "expressions.cu";
    source.kernel_name = "expressions";
    source.text = template_text("primitives/simulator_interface.cuh") +
                  template_text("primitives/simulator_prelude.cuh") + all_items("common.cuh") +
                  all_items("primitives/primitives.cuh",
                            {"exp2_approximate", "log2_approximate", "reciprocal_approximate", "absolute"}) +
                  all_items("expression_values.cuh") + all_items("expression_ranges.cuh") +
                  all_items("expression_key_ranges.cuh") +
                  all_items("visibility.cuh", {"KeyLimits", "clamp"}) + all_items("expression_limits.cuh") +
                  scope_text;
    std::string dispatch;
    for (size_t i = 0; i < masks.size(); ++i) {
      const bool limits = gives_limits(key_rule(masks[i]));
      source.text +=
          in_namespace('m', i,
                       mask_function(masks[i]) + tile_state_function(masks[i]) +
                           key_range_function(masks[i]) + (limits ? row_limits_function(masks[i]) : ""));
      const std::string scope = "m" + std::to_string(i) + "::";
      dispatch += "    case " + std::to_string(i) + ":\n      c.mask = " + scope +
                  "mask_of(*c.scope, c.q, c.kv);\n" + "      c.state = (int)" + scope +
                  "tile_state(*c.scope, c.q, c.q1, c.kv, c.kv1);\n" + "      c.keys = " + scope +
                  "key_range(*c.scope, c.q, c.q1);\n" +
                  (limits ? "      { const KeyLimits limits = " + scope +
                                "row_limits(*c.scope, c.q, c.kv);\n        c.low = limits.low, c.high = "
                                "limits.high; }\n"
                          : "") +
                  "      break;\n";
    }
    for (size_t i = 0; i < scores.size(); ++i) {
      source.text += in_namespace('s', i, score_function(scores[i]));
      dispatch += "    case " + std::to_string(masks.size() + i) + ":\n      c.value = s" +
                  std::to_string(i) +
                  "::score_of(*c.scope, {c.q - 3, c.kv - 2}, 3, 2, c.score);\n      break;\n";
    }
    source.text +=
        "extern \"C\" void expressions_set(void* value, void* range) {\n"
        "  look_up = (decltype(look_up))value;\n  look_up_range = (decltype(look_up_range))range;\n}\n"
        "extern \"C\" void expressions_bind(const SimulatorInterface* i) { simulator = i; }\n"
        "extern \"C\" void expressions_thunk(const void* parameters) {\n  Call& c = *(Call*)parameters;\n"
        "  switch (c.which) {\n" +
        dispatch + "  }\n}\n";
    kernel_ = build_host_kernel(source, SimulatorCompiler::automatic);
    kernel_.bind(&simulator::simulator_interface);
    const auto set = reinterpret_cast<void (*)(void*, void*)>(kernel_.code->symbol("expressions_set"));
    set(reinterpret_cast<void*>(answer), reinterpret_cast<void*>(answer_range));
  }

  void operator()(Call& call) const { kernel_.thunk(&call); }

 private:
  HostKernel kernel_;
};

Scope scope_of(const RandomData& data, int head, int batch) {
  return {head,
          static_cast<int>(head * data.kv_heads / data.heads),
          batch,
          static_cast<int>(data.seqlen_q),
          static_cast<int>(data.seqlen_kv),
          static_cast<int>(data.scalars.at("width").integer),
          static_cast<int>(data.scalars.at("step").integer),
          static_cast<float>(data.scalars.at("cap").number),
          &data};
}

TEST(ExpressionFunctions, MeanWhatTheInterpreterSays) {
  RandomExpressions random(1);
  std::vector<Expression> masks, scores;
  random.with_floats = false;  // fp32 and fp64 may compare otherwise
  for (int i = 0; i < 60; ++i) masks.push_back(random.mask(static_cast<int>(random.between(3, 6))));
  const Declarations declarations = random_declarations();
  for (const char* text :
       {"q >= kv", "q - kv < width", "q / 8 == kv / 8", "q / step == kv / step", "abs(q - kv) < 2147483648",
        "q * 9223372036854775807 < kv * 4611686018427387904 + width", "q % 3 + kv % -3 == 0",
        "document[q] == document[kv] && keep[batch, kv - 1]", "kv - 4294967296 * width < q",
        "kv >= document[q] && kv <= q", "kv <= q || kv < width", "abs(q - kv) < width && head > 0",
        "kv >= document[q] - 2147483647", "head == 1 ? kv <= q : kv <= q + width"})
    masks.push_back(parse_mask(text, declarations));
  random.with_floats = true;
  for (int i = 0; i < 40; ++i) scores.push_back(random.score(static_cast<int>(random.between(2, 5))));
  scores.push_back(
      derivative_by_score(parse_score("cap * tanh(score / cap) - slope[head] * abs(q - kv)", declarations)));
  const ExpressionFunctions functions(masks, scores);

  int decided = 0, skipped = 0, limited = 0;
  for (size_t i = 0; i < masks.size(); ++i)
    for (int trial = 0; trial < 12; ++trial) {
      const RandomData data(random, random.between(1, 24), random.between(1, 24));
      const int q0 = static_cast<int>(random.below(data.seqlen_q) + data.seqlen_kv - data.seqlen_q);
      const int kv0 = static_cast<int>(random.below(data.seqlen_kv)), head = trial % 4, batch = trial % 2;
      const Scope scope = scope_of(data, head, batch);
      Call tile{.which = static_cast<int>(i),
                .scope = &scope,
                .q = q0,
                .kv = kv0,
                .q1 = q0 + trial / 3,
                .kv1 = kv0 + trial / 3};
      functions(tile);
      const TileState state = static_cast<TileState>(tile.state);
      decided += state != TileState::mixed;
      skipped += tile.keys.begin > kv0 || tile.keys.end <= tile.kv1;
      for (int q = q0; q <= tile.q1; ++q)
        for (int kv = kv0; kv <= tile.kv1; ++kv) {
          const bool expected = evaluate(masks[i], data.at(q, kv, head, batch)).integer != 0;
          Call call{.which = static_cast<int>(i), .scope = &scope, .q = q, .kv = kv, .q1 = q, .kv1 = kv};
          functions(call);
          ASSERT_EQ(call.mask, expected) << mask_function(masks[i]) << "at " << q << ", " << kv;
          if (gives_limits(key_rule(masks[i]))) {
            ASSERT_EQ(call.low <= 0 && 0 < call.high, expected)
                << row_limits_function(masks[i]) << "at " << q << ", " << kv;
            ++limited;
          }
          ASSERT_TRUE(state == TileState::mixed || expected == (state == TileState::full))
              << tile_state_function(masks[i]);
          ASSERT_TRUE(!expected || (tile.keys.begin <= kv && kv < tile.keys.end))
              << key_range_function(masks[i]);
          ASSERT_TRUE(expected || kv < tile.keys.full_begin || kv >= tile.keys.full_end)
              << key_range_function(masks[i]);
        }
    }
  EXPECT_GT(decided, 200);
  EXPECT_GT(skipped, 100);
  EXPECT_GT(limited, 1000);

  // Ranges hold what rounding does to a value, and are narrow where it does little.
  int narrow = 0;
  for (size_t i = 0; i < scores.size(); ++i)
    for (int trial = 0; trial < 40; ++trial) {
      const RandomData data(random, 20, 24);
      const int q = static_cast<int>(random.between(4, 23)), kv = static_cast<int>(random.below(24));
      const Scope scope = scope_of(data, 1, 1);
      Call call{.which = static_cast<int>(masks.size() + i),
                .scope = &scope,
                .q = q,
                .kv = kv,
                .score = static_cast<float>(random.real(-3, 3))};
      functions(call);
      RangeEnvironment point = data.tile(q, q, kv, kv, 1, 1);
      point.score = ranges::exactly_float(call.score);
      const ranges::FloatRange range = range_of(scores[i], point).number;
      const double expected = evaluate(scores[i], data.at(q, kv, 1, 1, call.score)).number;
      for (double value : {static_cast<double>(call.value), expected})
        ASSERT_TRUE(std::isnan(value) ? ranges::may_be_nan(range) : range.low <= value && value <= range.high)
            << score_function(scores[i]) << value << " not in " << range.low << " to " << range.high;
      narrow += range.high - range.low <= 1e-3 * std::max(1.0, std::fabs(expected));
    }
  EXPECT_GT(narrow, 800);
}

// Floats of positions: one conversion for a tile, and a constant for each element; exact up to 2^24.
TEST(ExpressionFunctions, FloatsOfPositionsAreExact) {
  const Declarations declarations = random_declarations();
  std::vector<Expression> scores;
  for (const char* text :
       {"float(q - kv)", "float(abs(q - kv))", "float(abs(kv - q + head))", "float(3 * q - 2 * kv)",
        "float(-q)", "float(kv + 7) / 2", "float(q / 4)", "float(abs(q - kv) / 8 + kv % 3)"})
    scores.push_back(parse_score(text, declarations));
  EXPECT_NE(score_function(scores[1]).find("absolute((float)(at.q - at.kv) + (float)(row - column))"),
            std::string::npos)
      << score_function(scores[1]);
  const ExpressionFunctions functions({}, scores);
  RandomExpressions random(3);
  const RandomData data(random, 20, 24);
  const Scope scope = scope_of(data, 1, 1);
  constexpr int far = 1 << 22;
  for (size_t i = 0; i < scores.size(); ++i)
    for (const auto& [q, kv] : {std::pair{0, 0}, {23, 5}, {5, 23}, {far, far - 1}, {far - 3, 2}, {1, far}}) {
      Call call{.which = static_cast<int>(i), .scope = &scope, .q = q, .kv = kv};
      functions(call);
      EXPECT_EQ(call.value, evaluate(scores[i], data.at(q, kv, 1, 1)).number)
          << score_function(scores[i]) << q << ", " << kv;
    }
}

}  // namespace
}  // namespace tilewright
