// The gradient of the bias, d_bias.
#include <algorithm>
#include <cmath>

#include "codegen/error.h"
#include "tests/support/backward_grid.h"

namespace tilewright {
namespace {

using test::AttentionCase;
using test::run_backward;

/// The shape of a launch in full, and the bias in the shape of it that is not broadcast.
AttentionCase case_of(const std::string& keys, const std::vector<int64_t>& bias, uint64_t seed = 1) {
  AttentionCase attention{.spec = "{pass: backward, bias: true, bias_gradient: true, " + keys + "}",
                          .batch = 2,
                          .heads_kv = 1,
                          .seqlen_q = 70,
                          .seqlen_kv = 90,
                          .seed = seed};
  attention.tensors["bias"] = {bias, [](const auto& i) {
                                 return std::sin(static_cast<double>(i[0] + 7 * i[1] + 3 * i[2] + 5 * i[3]));
                               }};
  attention.tensors["slope"] = {{2}, [](const auto& i) { return 0.1 + 0.2 * static_cast<double>(i[0]); }};
  return attention;
}

const std::vector<int64_t> full = {2, 2, 70, 90};

class BiasGradient : public testing::TestWithParam<std::string> {
 protected:
  Runtime runtime{test::simulator_options(3, GetParam())};
};

TEST_P(BiasGradient, OfWhatTheScoresPass) {
  for (const char* keys :
       {"head_dim: 64", "head_dim: 32, mask: causal, dtype: fp16",
        "head_dim: 32, softcap: 2, mask: {window: [20, 5]}",
        "head_dim: 24, dropout: true, sinks: true, lse: true",
        "head_dim: 136, mask: causal_top_left, softcap: 3",
        "head_dim: 32, alibi: true, mask: \"q >= kv && kv % 3 > 0\"", "head_dim: 128, deterministic: true",
        "head_dim: 32, score: \"score * score * 0.2 + slope[head] * score\", tensors: {slope: "
        "float32[head]}"})
    run_backward(runtime, case_of(std::string(keys) + ", gqa_ratio: 2", full));
}

TEST_P(BiasGradient, SummedOverWhatIsBroadcast) {
  uint64_t seed = 0;
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {1, 2, 70, 90}, {2, 1, 70, 90}, {1, 1, 70, 90}, {2, 2, 1, 90}, {1, 2, 70, 1}, {1, 1, 1, 1}})
    run_backward(runtime, case_of("head_dim: 32, mask: causal, gqa_ratio: 2", shape, ++seed));
}

// The launch adds to what d_bias holds.
TEST_P(BiasGradient, IsAddedUpOverLaunches) {
  const AttentionCase attention = case_of("head_dim: 16, deterministic: true, gqa_ratio: 2", full);
  const auto once = run_backward(runtime, attention, false),
             twice = run_backward(runtime, attention, false, 2);
  for (int64_t i = 0; i < once.d_bias.elements(); i += 7)
    ASSERT_EQ(twice.d_bias.get(i), 2 * once.d_bias.get(i)) << "element " << i;
}

// Without keys or queries there is nothing to add.
TEST_P(BiasGradient, LengthsOfZero) {
  for (auto [rows, keys] : {std::pair{0, 9}, {9, 0}}) {
    AttentionCase attention = case_of("head_dim: 32", {1, 1, std::max(rows, 1), std::max(keys, 1)});
    attention.seqlen_q = rows, attention.seqlen_kv = keys;
    run_backward(runtime, attention);
  }
}

INSTANTIATE_TEST_SUITE_P(Simulator, BiasGradient, testing::ValuesIn(test::backward_targets()),
                         [](const auto& info) { return info.param; });

// --- against the forward reference

/// Multiples of 1/16 from -1 to 1.
std::vector<uint16_t> elements(int64_t count, int seed) {
  std::vector<uint16_t> list(count);
  for (int64_t i = 0; i < count; ++i)
    store_element(list.data(), DataType::bf16, i,
                  std::round(16 * std::sin(seed * 1.7 + static_cast<double>(i) * 2.3)) / 16);
  return list;
}

// The loss sum(out * d_out) changes with each element of the bias as d_bias says.
TEST(BiasGradientReference, IsTheSlopeOfTheLoss) {
  constexpr int64_t heads = 2, rows = 5, keys = 6, dim = 8;
  for (const char* more : {"mask: causal", "softcap: 1.5", "mask: {window: [2, 1]}, sinks: true"})
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{1, heads, rows, keys}, {1, 1, rows, keys}, {1, heads, 1, keys}}) {
      const AttentionSpec spec = parse_spec(
          std::string("{pass: backward, head_dim: 8, bias: true, bias_gradient: true, ") + more + "}",
          "spec");
      int64_t count = 1;
      for (int64_t size : shape) count *= size;
      std::vector<uint16_t> q = elements(rows * heads * dim, 1), k = elements(keys * heads * dim, 2),
                            v = elements(keys * heads * dim, 3), d_out = elements(rows * heads * dim, 4),
                            bias = elements(count, 5);
      std::vector<float> lse(heads * rows), sinks = {0.3f, -0.4f}, d_bias(count);
      const TensorView by_rows{q.data(), DataType::bf16, {1, rows, heads, dim}, {}};
      const TensorView by_keys{k.data(), DataType::bf16, {1, keys, heads, dim}, {}};
      BackwardArguments arguments{.q = by_rows,
                                  .k = by_keys,
                                  .v = by_keys,
                                  .out = by_rows,
                                  .lse = {lse.data(), DataType::fp32, {1, heads, rows}, {}},
                                  .d_out = by_rows,
                                  .dq = by_rows,
                                  .dk = by_keys,
                                  .dv = by_keys};
      arguments.v.data = v.data(), arguments.d_out.data = d_out.data();
      arguments.tensors["bias"] = {bias.data(), DataType::bf16, shape, {}};
      arguments.d_bias = {d_bias.data(), DataType::fp32, shape, {}};
      if (spec.sinks) arguments.sinks = {sinks.data(), DataType::fp32, {heads}, {}};
      const std::vector<double> gradient = reference_backward(spec, arguments).d_bias;
      ASSERT_EQ(static_cast<int64_t>(gradient.size()), count);
      const auto loss = [&] {
        const std::vector<double> out = reference_forward(forward_spec(spec), forward_part(arguments)).out;
        double sum = 0;
        for (size_t i = 0; i < out.size(); ++i)
          sum += out[i] * load_element(d_out.data(), DataType::bf16, static_cast<int64_t>(i));
        return sum;
      };
      for (int64_t i = 0; i < count; ++i) {
        const double value = load_element(bias.data(), DataType::bf16, i);
        double change = 0;
        for (double side : {1.0, -1.0}) {
          store_element(bias.data(), DataType::bf16, i, value + side / 64);
          change += side * loss();
        }
        store_element(bias.data(), DataType::bf16, i, value);
        EXPECT_NEAR(change * 32, gradient[i], 2e-4) << more << " element " << i;
      }
    }
}

// --- what a launch may give

TEST(BiasGradientArguments, AreChecked) {
  constexpr int64_t rows = 64;
  std::vector<uint16_t> tensor(2 * rows * 16), bias(2 * rows * rows);
  std::vector<float> lse(2 * rows), d_bias(bias.size());
  const TensorView view{tensor.data(), DataType::bf16, {1, rows, 2, 16}, {}};
  const auto message = [&](const char* more, std::optional<TensorView> gradient,
                           std::vector<int64_t> bias_shape) {
    const AttentionSpec spec =
        parse_spec(std::string("{pass: backward, head_dim: 16, bias: true") + more + "}", "spec");
    BackwardArguments arguments{.q = view,
                                .k = view,
                                .v = view,
                                .out = view,
                                .lse = {lse.data(), DataType::fp32, {1, 2, rows}, {}},
                                .d_out = view,
                                .dq = view,
                                .dk = view,
                                .dv = view};
    arguments.tensors["bias"] = {bias.data(), DataType::bf16, std::move(bias_shape), {}};
    arguments.d_bias = std::move(gradient);
    try {
      check_arguments(spec, arguments);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string();
  };
  const std::vector<int64_t> whole = {1, 2, rows, rows}, one_head = {1, 1, rows, rows};
  const auto gradient = [&](std::vector<int64_t> shape, std::vector<int64_t> strides = {},
                            DataType type = DataType::fp32) {
    return TensorView{d_bias.data(), type, std::move(shape), std::move(strides)};
  };
  const char *asked = ", bias_gradient: true", *deterministic = ", bias_gradient: true, deterministic: true";
  EXPECT_EQ(message(asked, gradient(whole), whole), "");
  EXPECT_EQ(message(asked, gradient(one_head), one_head), "");
  EXPECT_EQ(message(deterministic, gradient(whole), whole), "");
  const auto expect = [&](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(message(asked, std::nullopt, whole), "d_bias is missing: the spec says `bias_gradient: true`");
  expect(message("", gradient(whole), whole), "the spec does not say `bias_gradient: true`");
  expect(message(asked, gradient(whole), one_head), "head dimension is 2, expected that of bias, 1");
  expect(message(asked, gradient(whole, {}, DataType::bf16), whole), "d_bias is bf16, expected fp32");
  expect(message(asked, gradient(whole, {0, rows, 1, 2 * rows}), whole), "d_bias must be contiguous");
  expect(message(deterministic, gradient(one_head), one_head), "its sums have no order");
}

TEST(BiasGradientSpec, BelongsToTheBackwardPassOfABias) {
  const auto message = [](const char* text) {
    try {
      parse_spec(text, "spec");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message("{pass: backward, head_dim: 16, bias_gradient: true}").find("there is no bias"),
            std::string::npos);
  EXPECT_NE(
      message("{head_dim: 16, bias: true, bias_gradient: true}").find("`pass: forward` has no gradients"),
      std::string::npos);
  EXPECT_EQ(message("{pass: backward, head_dim: 16, bias: true, bias_gradient: true}"), "");
}

}  // namespace
}  // namespace tilewright
