// The canonical form is a spec's identity: complete, stable, and readable by the parser.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "codegen/nearest.h"
#include "codegen/spec.h"

namespace tilewright {
namespace {

AttentionSpec parsed(const std::string& yaml) {
  return parse_spec(yaml, "spec.yaml");
}

TEST(CanonicalForm, HoldsOnlyWhatDiffersFromTheDefaults) {
  EXPECT_EQ(canonical_form(parsed("head_dim: 128")), "head_dim: 128\n");
  EXPECT_EQ(canonical_form(
                parsed("name: x\npass: forward\nhead_dim: {qk: 128, v: 128}\ndtype: bf16\ngqa_ratio: 1\n"
                       "mask: none\nlayout: bshd\nblocks: auto\nsoftcap: 0.0\nlse: false\nrope: none\n")),
            "head_dim: 128\n");
}

TEST(CanonicalForm, HasAFixedOrderAndSpelling) {
  std::string form = canonical_form(parsed(R"(
rope: half
deterministic: true
dropout: true
sinks: true
bias: true
alibi: true
lse: true
softcap: 5e1
softmax_scale: 0.0883883476483184
blocks: {query_in_registers: false, warps: 4, stages: 2, n: 64, m: 128}
page_size: 16
layout: paged
mask: {window: [inf, -3]}
gqa_ratio: 5
dtype: {out: bf16, kv: e5m2, q: fp16}
head_dim: {v: 128, qk: 192}
pass: decode
name: not part of it
)"));
  EXPECT_EQ(form,
            "pass: decode\n"
            "head_dim: {qk: 192, v: 128}\n"
            "dtype: {q: fp16, kv: e5m2, out: bf16}\n"
            "gqa_ratio: 5\n"
            "mask: {window: [inf, -3]}\n"
            "layout: paged\n"
            "page_size: 16\n"
            "blocks: {m: 128, n: 64, stages: 2, warps: 4, query_in_registers: false}\n"
            "softmax_scale: 0.0883883476483184\n"
            "softcap: 50\n"
            "lse: true\n"
            "alibi: true\n"
            "bias: true\n"
            "sinks: true\n"
            "dropout: true\n"
            "deterministic: true\n"
            "rope: half\n");
}

TEST(CanonicalForm, ExpressionsAndTheirNamesHaveOneSpelling) {
  EXPECT_EQ(
      canonical_form(parsed(R"(
score: score*2 - slope[head] + bias[batch, head, q, kv] * cap
tensors: {slope: float32[head], document: int32[ kv ], bias: bf16[batch,head,q,kv]}
scalars: {window: int, cap: float}
mask: "(document[q] == document[kv]) && q - kv < window"
head_dim: 64
)")),
      "head_dim: 64\n"
      "mask: \"document[q] == document[kv] && q - kv < window\"\n"
      "score: \"score * 2.0 - slope[head] + bias[batch, head, q, kv] * cap\"\n"
      "scalars: {cap: float, window: int}\n"
      "tensors: {bias: \"bf16[batch, head, q, kv]\", document: \"int32[kv]\", slope: \"float32[head]\"}\n");
}

TEST(CanonicalForm, WindowsAreNotMergedWithOtherMasks) {
  EXPECT_EQ(canonical_form(parsed("head_dim: 64\nmask: {window: [inf, 0]}")),
            "head_dim: 64\nmask: {window: [inf, 0]}\n");
  EXPECT_EQ(canonical_form(parsed("head_dim: 64\nmask: {window: [inf, inf]}")),
            "head_dim: 64\nmask: {window: [inf, inf]}\n");
}

TEST(CanonicalForm, IgnoresOrderCommentsSpacesAndTheName) {
  std::string form = canonical_form(parsed("name: a\nhead_dim: 64\ndtype: fp16\nmask: causal\n"));
  EXPECT_EQ(
      canonical_form(parsed("mask:   causal # here\n\n\n# there\ndtype: 'fp16'\nhead_dim: 64\nname: b")),
      form);
  EXPECT_EQ(canonical_form(parsed("{dtype: fp16, head_dim: 64, mask: causal}")), form);
}

TEST(CanonicalForm, EverySingleChangeGivesAnotherIdentity) {
  const std::vector<std::vector<std::string>> values = {
      {"pass: forward", "pass: backward", "pass: decode"},
      {"head_dim: 128", "head_dim: 64", "head_dim: {qk: 128, v: 64}", "head_dim: {qk: 64, v: 128}"},
      {"dtype: bf16", "dtype: fp16", "dtype: {q: bf16, kv: e4m3, out: bf16}",
       "dtype: {q: bf16, kv: e5m2, out: bf16}", "dtype: {q: bf16, kv: e4m3, out: fp16}",
       "dtype: {q: fp16, kv: e4m3, out: fp16}"},
      {"gqa_ratio: 1", "gqa_ratio: 4", "gqa_ratio: 5"},
      {"mask: none", "mask: q >= kv", "mask: q > kv", "mask: causal", "mask: causal_top_left",
       "mask: {window: [8, 0]}", "mask: {window: [0, 8]}", "mask: {window: [inf, 0]}",
       "mask: {window: [9, 0]}", "mask: {window: [9, -1]}", "mask: {blocks: {m: 64, n: 64}}",
       "mask: {blocks: {m: 64, n: 128}}", "mask: {blocks: {m: 128, n: 64}}",
       "mask: {blocks: {m: 64, n: 64}, with: causal}",
       "mask: {blocks: {m: 64, n: 64}, with: {window: [8, 0]}}"},
      {"", "score: score * 2.0", "score: score", "score: score * x\nscalars: {x: int}",
       "score: score * x\nscalars: {x: float}", "score: x[q]\ntensors: {x: fp16[q]}",
       "score: x[q]\ntensors: {x: bf16[q]}", "score: x[q]\ntensors: {x: fp16[kv]}"},
      {"layout: bshd", "layout: bhsd", "layout: packed", "layout: paged\npage_size: 16",
       "layout: paged\npage_size: 32"},
      {"blocks: auto", "blocks: {m: 64}", "blocks: {m: 128}", "blocks: {n: 64}", "blocks: {stages: 1}",
       "blocks: {warps: 4}", "blocks: {query_in_registers: true}", "blocks: {query_in_registers: false}",
       "blocks: {family: sm80}", "blocks: {family: sm90}", "blocks: {ping_pong: true}",
       "blocks: {ping_pong: false}", "blocks: {pack_group: 1}", "blocks: {pack_group: 4}",
       "blocks: {cluster: 1}", "blocks: {cluster: 2}"},
      {"softmax_scale: launch", "softmax_scale: 0.125", "softmax_scale: 0.12500000000000003"},
      {"softcap: 0", "softcap: 50", "softcap: 30"},
      {"lse: false", "lse: true"},
      {"alibi: false", "alibi: true"},
      {"bias: false", "bias: true"},
      {"sinks: false", "sinks: true"},
      {"dropout: false", "dropout: true"},
      {"deterministic: false", "deterministic: true"},
      {"rope: none", "rope: interleaved", "rope: half"},
  };
  auto spec_with = [&](size_t changed, size_t choice) {
    std::string yaml;
    for (size_t key = 0; key < values.size(); ++key) yaml += values[key][key == changed ? choice : 0] + "\n";
    return yaml;
  };
  std::set<std::string> forms = {canonical_form(parsed(spec_with(0, 0)))};
  for (size_t key = 0; key < values.size(); ++key) {
    for (size_t choice = 1; choice < values[key].size(); ++choice) {
      std::string yaml = spec_with(key, choice);
      EXPECT_TRUE(forms.insert(canonical_form(parsed(yaml))).second) << values[key][choice];
    }
  }
}

/// A valid spec drawn from the whole language.
AttentionSpec random_spec(std::mt19937& generator) {
  auto below = [&](int count) { return static_cast<int>(generator() % static_cast<unsigned>(count)); };
  auto coin = [&] { return below(2) == 1; };
  const DataType types[] = {DataType::fp16, DataType::bf16, DataType::e4m3, DataType::e5m2};
  AttentionSpec spec;
  spec.pass = static_cast<Pass>(below(3));
  spec.head_dim = {8 * (1 + below(72)), 8 * (1 + below(72))};
  if (coin()) spec.head_dim.v = spec.head_dim.qk;
  spec.dtype = {types[below(4)], types[below(4)], types[below(4)]};
  spec.gqa_ratio = 1 + below(128);
  spec.mask.kind = static_cast<Mask::Kind>(below(4));
  if (spec.mask.kind == Mask::Kind::window) {
    if (coin()) spec.mask.left = below(5000);
    if (coin()) spec.mask.right = spec.mask.left == Mask::unlimited ? below(200) - 100 : below(100);
  }
  spec.layout = static_cast<Layout>(below(4));
  if (spec.layout == Layout::paged) spec.page_size = 1 + below(600);
  if (coin()) spec.blocks.m = 16 * (1 + below(32));
  if (coin()) spec.blocks.n = 8 * (1 + below(64));
  if (coin()) spec.blocks.stages = 1 + below(16);
  if (coin()) spec.blocks.warps = 1 + below(32);
  if (coin()) spec.blocks.query_in_registers = coin();
  if (coin()) spec.blocks.family = coin() ? Family::sm80 : Family::sm90;
  if (coin()) spec.blocks.ping_pong = coin();
  if (coin()) spec.blocks.pack_group = 1 + below(64);
  if (coin()) spec.blocks.cluster = 1 + coin();
  int scale = below(3);
  if (scale == 1) spec.softmax_scale = std::uniform_real_distribution<double>(1e-12, 4)(generator);
  if (scale == 2) spec.softmax_scale_at_launch = true;
  if (coin()) spec.softcap = std::exp(std::uniform_real_distribution<double>(-13, 13)(generator));
  for (bool* flag : {&spec.lse, &spec.alibi, &spec.bias, &spec.sinks, &spec.dropout, &spec.deterministic}) {
    *flag = coin();
  }
  spec.bias_gradient = spec.bias && spec.pass == Pass::backward && coin();
  spec.rope = static_cast<Rope>(below(3));
  return spec;
}

TEST(CanonicalForm, ParsesBackToAnEqualSpec) {
  std::mt19937 generator(1);
  for (int i = 0; i < 2000; ++i) {
    AttentionSpec spec = random_spec(generator);
    ASSERT_EQ(validate(spec), std::vector<std::string>{});
    std::string form = canonical_form(spec);
    ASSERT_EQ(parsed(form), spec) << form;
    ASSERT_EQ(canonical_form(parsed(form)), form);
  }
}

TEST(Validate, NamesEveryProblemOfASpecSetByCode) {
  AttentionSpec spec;
  spec.head_dim = {100, 64};
  spec.dtype.out = DataType::fp32;
  spec.gqa_ratio = 0;
  spec.mask = {Mask::Kind::window, 3, -4};
  spec.page_size = 16;
  spec.softcap = std::nan("");
  spec.softmax_scale = 1;
  spec.softmax_scale_at_launch = true;
  spec.blocks.warps = 0;
  const char* expected[] = {
      "mask.window: [3, -4] is empty",
      "head_dim.qk: 100 is not valid; expected a multiple of 8 from 8 to 576; nearest: 96 and 104",
      "dtype.out: fp32 is not valid",
      "gqa_ratio: 0 is not valid",
      "page_size: has no meaning with layout bshd",
      "blocks.warps: 0 is not valid",
      "softmax_scale: both a number and `launch`",
      "softcap: nan is not valid"};
  std::vector<std::string> messages = validate(spec);
  ASSERT_EQ(messages.size(), std::size(expected));
  for (size_t i = 0; i < messages.size(); ++i)
    EXPECT_TRUE(messages[i].starts_with(expected[i])) << messages[i];
}

TEST(Validate, WindowSidesNeedAWindow) {
  AttentionSpec spec;
  spec.head_dim = {64, 64};
  spec.mask = {Mask::Kind::causal, 5, Mask::unlimited};
  ASSERT_EQ(validate(spec).size(), 1u);
  EXPECT_TRUE(validate(spec)[0].starts_with("mask: left and right are set although the mask is no window"));
}

TEST(Validate, ExpressionsObeyTheirDeclarations) {
  Declarations declarations;
  declarations.scalars["window"] = ScalarType::integer;
  AttentionSpec spec;
  spec.head_dim = {64, 64};
  spec.mask.kind = Mask::Kind::expression;
  const auto first_problem = [&] {
    const std::vector<std::string> messages = validate(spec);
    return messages.empty() ? std::string() : messages[0];
  };
  EXPECT_EQ(first_problem(),
            "mask: kind and expression do not agree; expected an expression with Kind::expression alone");
  spec.mask.expression = parse_mask("q < window", declarations);
  EXPECT_TRUE(first_problem().starts_with("mask: unknown name 'window'")) << first_problem();
  spec.declarations = declarations;
  EXPECT_EQ(first_problem(), "");
  spec.declarations.scalars["cap"] = ScalarType::number;
  EXPECT_EQ(first_problem(),
            "scalars.cap: neither mask nor score uses it; expected a use, or no declaration");
  spec.declarations.scalars.erase("cap");
  spec.declarations.scalars["window"] = ScalarType::number;
  EXPECT_TRUE(first_problem().starts_with("mask: 'q < window' is another tree than its text says"))
      << first_problem();
}

TEST(Nearest, CountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("casual", "causal"), 1);
  const std::vector<std::string_view> words = {"head_dim", "mask", "bias"};
  EXPECT_EQ(nearest("head_dm", words), "head_dim");
  EXPECT_EQ(nearest("masks", words), "mask");
  EXPECT_EQ(nearest("sm_90", std::vector<std::string_view>{"sm_80", "sm_90a"}), "sm_90a");
  EXPECT_EQ(nearest("something", words), "");
  EXPECT_EQ(nearest(std::string(100000, 'x'), words), "");
}

}  // namespace
}  // namespace tilewright
