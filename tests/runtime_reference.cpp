#include "runtime/reference.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "codegen/error.h"
#include "tests/support/runtime_support.h"

namespace tilewright {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Tensors in host memory for one spec and shape.
struct Tensors {
  Tensors(const std::string& yaml, int64_t batch, int64_t heads, int64_t seqlen_q, int64_t seqlen_kv)
      : spec(parse_spec(yaml, "spec")) {
    const int64_t kv_heads = heads / spec.gqa_ratio;
    arguments.q = add(spec.dtype.q, {batch, seqlen_q, heads, spec.head_dim.qk});
    arguments.k = add(spec.dtype.kv, {batch, seqlen_kv, kv_heads, spec.head_dim.qk});
    arguments.v = add(spec.dtype.kv, {batch, seqlen_kv, kv_heads, spec.head_dim.v});
    arguments.out = add(spec.dtype.out, {batch, seqlen_q, heads, spec.head_dim.v});
    if (spec.lse) arguments.lse = add(DataType::fp32, {batch, heads, seqlen_q});
  }

  TensorView add(DataType type, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    void* data = std::aligned_alloc(64, (count * size_of(type) + 64) / 64 * 64);
    memory.emplace_back(data, &std::free);
    std::memset(data, 0, count * size_of(type));
    return {.data = data, .dtype = type, .shape = std::move(shape)};
  }

  static int64_t count(const TensorView& view) {
    int64_t product = 1;
    for (int64_t size : view.shape) product *= size;
    return product;
  }

  void fill(const TensorView& view, const std::function<double(int64_t)>& value) {
    for (int64_t i = 0; i < count(view); ++i) store_element(view.data, view.dtype, i, value(i));
  }

  void randomise(unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal;
    for (const auto* view : {&arguments.q, &arguments.k, &arguments.v})
      fill(*view, [&](int64_t) { return normal(engine); });
  }

  /// Puts an answer where the kernel would.
  void answer(const ReferenceResult& result) {
    fill(arguments.out, [&](int64_t i) { return result.out[i]; });
    if (arguments.lse) fill(*arguments.lse, [&](int64_t i) { return result.lse[i]; });
  }

  AttentionSpec spec;
  ForwardArguments arguments;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory;
};

TEST(Element, EveryHalfSurvives) {
  for (DataType type : {DataType::fp16, DataType::bf16})
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const auto stored = static_cast<uint16_t>(bits);
      const double value = load_element(&stored, type, 0);
      uint16_t back = 0;
      store_element(&back, type, 0, value);
      if (std::isnan(value))
        EXPECT_TRUE(std::isnan(load_element(&back, type, 0)));
      else
        ASSERT_EQ(back, stored) << name_of(type) << " " << value;
    }
}

TEST(Element, RoundsToNearestEven) {
  const struct {
    DataType type;
    double value;
    uint16_t bits;
  } cases[] = {
      {DataType::bf16, 1 + 0x1p-8, 0x3f80},            // a tie, down to even
      {DataType::bf16, 1 + 3 * 0x1p-8, 0x3f82},        // a tie, up to even
      {DataType::bf16, 1 + 0x1p-8 + 0x1p-40, 0x3f81},  // just above a tie: one rounding, not two
      {DataType::bf16, 0x1.ffp127, 0x7f80},            // rounds up to infinity
      {DataType::bf16, -0.0, 0x8000},
      {DataType::bf16, 133120, 0x4802},
      {DataType::fp16, 1 + 0x1p-11, 0x3c00},
      {DataType::fp16, 1 + 3 * 0x1p-11, 0x3c02},
      {DataType::fp16, 65519, 0x7bff},
      {DataType::fp16, 65520, 0x7c00},
      {DataType::fp16, 0x1p-24, 0x0001},
      {DataType::fp16, 0x1p-25, 0x0000},
      {DataType::fp16, 0x1.8p-25, 0x0001},
      {DataType::fp16, -infinity, 0xfc00},
  };
  for (const auto& [type, value, bits] : cases) {
    uint16_t stored = 0;
    store_element(&stored, type, 0, value);
    EXPECT_EQ(stored, bits) << name_of(type) << " " << value;
  }
  EXPECT_THROW(load_element(cases, DataType::e4m3, 0), Error);
}

// Two keys whose scores differ by ln 3: weights 1/4 and 3/4.
TEST(Reference, TwoKeysByHand) {
  Tensors tensors("{head_dim: 8, lse: true, softmax_scale: 1, dtype: fp16}", 1, 1, 1, 2);
  tensors.fill(tensors.arguments.q, [](int64_t i) { return i == 0 ? 1 : 0; });
  tensors.fill(tensors.arguments.k, [](int64_t i) { return i == 0 ? 2 : i == 8 ? 3 : 0; });
  tensors.fill(tensors.arguments.v, [](int64_t i) { return i < 8 ? 4 : 8; });
  ReferenceResult result = reference_forward(tensors.spec, tensors.arguments);
  const double weight = 1 / (1 + std::exp(-1.0));  // of the second key
  for (double value : result.out) EXPECT_NEAR(value, 4 + 4 * weight, 1e-14);
  EXPECT_NEAR(result.lse[0], std::log(std::exp(2) + std::exp(3)), 1e-14);
}

TEST(Reference, ScaleAtLaunchAndSoftCap) {
  Tensors tensors("{head_dim: 8, lse: true, softmax_scale: launch, softcap: 2, dtype: fp16}", 1, 1, 1, 1);
  tensors.arguments.softmax_scale = 0.5;
  tensors.fill(tensors.arguments.q, [](int64_t i) { return i == 0 ? 4 : 0; });
  tensors.fill(tensors.arguments.k, [](int64_t i) { return i == 0 ? 3 : 0; });
  EXPECT_NEAR(reference_forward(tensors.spec, tensors.arguments).lse[0], 2 * std::tanh(6 / 2.0), 1e-14);
}

// With all scores 0 the output is the mean of the visible values, and exp(LSE) their number. Value j is 2^j:
// the sum tells which keys were seen.
TEST(Reference, MasksByHand) {
  const struct {
    const char* mask;
    int64_t seqlen_q, seqlen_kv;
    std::vector<unsigned> visible;  // bit j of row i: query i sees key j
  } cases[] = {
      {"none", 2, 3, {0b111, 0b111}},
      {"causal", 2, 4, {0b0111, 0b1111}},
      {"causal", 4, 2, {0, 0, 0b01, 0b11}},
      {"causal_top_left", 2, 4, {0b0001, 0b0011}},
      {"causal_top_left", 4, 2, {0b01, 0b11, 0b11, 0b11}},
      {"{window: [1, 0]}", 4, 4, {0b0001, 0b0011, 0b0110, 0b1100}},
      {"{window: [0, 1]}", 3, 4, {0b0110, 0b1100, 0b1000}},
      {"{window: [inf, 0]}", 2, 3, {0b011, 0b111}},
      {"{window: [0, inf]}", 3, 3, {0b111, 0b110, 0b100}},
      {"{window: [2, -1]}", 4, 4, {0, 0b0001, 0b0011, 0b0110}},
      {"{window: [-1, 2]}", 3, 3, {0b110, 0b100, 0}},
      {"none", 2, 0, {0, 0}},
  };
  for (const auto& [mask, seqlen_q, seqlen_kv, visible] : cases) {
    Tensors tensors("{head_dim: 8, lse: true, dtype: fp16, mask: " + std::string(mask) + "}", 1, 1, seqlen_q,
                    seqlen_kv);
    tensors.fill(tensors.arguments.v, [](int64_t i) { return 1 << (i / 8); });
    ReferenceResult result = reference_forward(tensors.spec, tensors.arguments);
    for (int64_t i = 0; i < seqlen_q; ++i) {
      const int keys = std::popcount(visible[i]);
      EXPECT_NEAR(result.out[i * 8 + 3], keys ? static_cast<double>(visible[i]) / keys : 0, 1e-13)
          << mask << " row " << i;
      if (keys)
        EXPECT_NEAR(result.lse[i], std::log(keys), 1e-14) << mask << " row " << i;
      else
        EXPECT_EQ(result.lse[i], -infinity) << mask << " row " << i;
    }
  }
}

// Every head has its own constant value: the output tells which KV head and batch it came from.
TEST(Reference, HeadsBatchesAndStrides) {
  Tensors tensors("{head_dim: 8, gqa_ratio: 3, dtype: bf16, layout: bhsd}", 2, 6, 2, 4);
  // bhsd without strides: batch, head, sequence, element.
  tensors.fill(tensors.arguments.v, [](int64_t i) { return static_cast<double>(i / (4 * 8)); });
  ReferenceResult result = reference_forward(tensors.spec, tensors.arguments);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t h = 0; h < 6; ++h) {
        const double expected = static_cast<double>(b * 2 + h / 3);
        EXPECT_NEAR(result.out[((b * 2 + i) * 6 + h) * 8], expected, 1e-14) << b << " " << i << " " << h;
      }
  // Every key of the last head alone, by strides.
  tensors.arguments.v.data = static_cast<char*>(tensors.arguments.v.data) + 3 * 4 * 8 * 2;
  tensors.arguments.v.strides = {0, 8, 0, 1};
  for (double value : reference_forward(tensors.spec, tensors.arguments).out) EXPECT_NEAR(value, 3, 1e-14);
}

TEST(Compare, AcceptsThePlainAnswerAndExactOnes) {
  for (const char* dtype : {"fp16", "bf16"})
    for (const char* mask : {"none", "causal", "{window: [5, 0]}"}) {
      Tensors tensors(
          "{head_dim: 32, gqa_ratio: 2, lse: true, dtype: " + std::string(dtype) + ", mask: " + mask + "}", 2,
          4, 33, 21);
      tensors.randomise(1);
      tensors.answer(plain_forward(tensors.spec, tensors.arguments));
      Verdict verdict = compare_forward(tensors.spec, tensors.arguments);
      EXPECT_TRUE(verdict.ok) << dtype << " " << mask << ": " << verdict.message;
      EXPECT_GT(verdict.error, 0);
      EXPECT_LE(verdict.error, 0.51 * verdict.allowed);
      tensors.answer(reference_forward(tensors.spec, tensors.arguments));
      EXPECT_TRUE(compare_forward(tensors.spec, tensors.arguments).ok);
    }
}

TEST(Compare, RefusesWrongAnswers) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    const char* name;
    std::function<void(Tensors&)> damage;
    const char* message;
  } cases[] = {
      {"a NaN", [](Tensors& t) { store_element(t.arguments.out.data, DataType::bf16, 32 * 30 + 3, nan); },
       "out[0, 30, 0, 3] is nan"},
      {"an infinity",
       [](Tensors& t) { store_element(t.arguments.out.data, DataType::bf16, 32 * 31, infinity); },
       "out[0, 31, 0, 0] is inf"},
      {"a wrong value",
       [](Tensors& t) { store_element(t.arguments.out.data, DataType::bf16, 32 * 31 + 1, 9); },
       "out[0, 31, 0, 1] is 9"},
      {"an empty row that is not quite 0",
       [](Tensors& t) { store_element(t.arguments.out.data, DataType::bf16, 5, 1e-30); },
       "out[0, 0, 0, 5] is"},
      {"a NaN in an empty row",
       [](Tensors& t) { store_element(t.arguments.out.data, DataType::bf16, 5, nan); },
       "out[0, 0, 0, 5] is nan"},
      {"a finite LSE of an empty row",
       [](Tensors& t) { static_cast<float*>(t.arguments.lse->data)[0] = -1e30f; }, "lse element 0 is -1"},
      {"a wrong LSE", [](Tensors& t) { static_cast<float*>(t.arguments.lse->data)[32] += 0.01f; },
       "lse element 32"},
      {"a NaN LSE", [](Tensors& t) { static_cast<float*>(t.arguments.lse->data)[32] = NAN; },
       "lse element 32 is nan"},
      {"all slightly off",
       [](Tensors& t) {
         for (int64_t i = 0; i < 33 * 32; ++i)
           store_element(t.arguments.out.data, DataType::bf16, i,
                         load_element(t.arguments.out.data, DataType::bf16, i) * (1 + 0x1p-5));
       },
       "out["},
  };
  for (const auto& [name, damage, message] : cases) {
    Tensors tensors("{head_dim: 32, lse: true, mask: causal}", 1, 1, 33, 21);
    tensors.randomise(2);
    tensors.answer(reference_forward(tensors.spec, tensors.arguments));
    damage(tensors);
    Verdict verdict = compare_forward(tensors.spec, tensors.arguments);
    EXPECT_FALSE(verdict.ok) << name;
    EXPECT_NE(verdict.message.find(message), std::string::npos) << name << ": " << verdict.message;
  }
}

TEST(Compare, OverflowOfTheTypeIsExpected) {
  Tensors tensors("{head_dim: 8, dtype: {q: fp16, kv: bf16, out: fp16}}", 1, 1, 1, 1);
  tensors.fill(tensors.arguments.v, [](int64_t) { return 1e6; });
  tensors.fill(tensors.arguments.out, [](int64_t) { return infinity; });
  EXPECT_TRUE(compare_forward(tensors.spec, tensors.arguments).ok);
  tensors.fill(tensors.arguments.out, [](int64_t) { return -infinity; });
  EXPECT_EQ(compare_forward(tensors.spec, tensors.arguments).wrong_non_finite, 8);
}

}  // namespace
}  // namespace tilewright
