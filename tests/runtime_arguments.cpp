#include "runtime/arguments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "codegen/error.h"
#include "tests/support/runtime_support.h"

namespace tilewright {
namespace {

alignas(256) char memory[1 << 16];

/// batch 2, 20 queries, 30 keys, 4 heads on 2, head_dim 64 and 32.
struct Problem {
  AttentionSpec spec = parse_spec("{head_dim: {qk: 64, v: 32}, gqa_ratio: 2}", "spec");
  ForwardArguments arguments = {
      .q = {memory, DataType::bf16, {2, 20, 4, 64}, {}},
      .k = {memory, DataType::bf16, {2, 30, 2, 64}, {}},
      .v = {memory, DataType::bf16, {2, 30, 2, 32}, {}},
      .out = {memory, DataType::bf16, {2, 20, 4, 32}, {}},
  };
  void with_lse() {
    spec.lse = true;
    arguments.lse = TensorView{memory, DataType::fp32, {2, 4, 20}, {}};
  }
};

std::string refusal(const Problem& problem) {
  return test::message_of<Error>([&] { check_arguments(problem.spec, problem.arguments); });
}

TEST(Arguments, AGoodLaunch) {
  Problem problem;
  EXPECT_EQ(refusal(problem), "");
  Schedule schedule{.block_m = 64, .block_n = 64, .warps = 4, .stages = 2};
  PreparedLaunch launch = prepare_launch(problem.spec, schedule, problem.arguments);
  EXPECT_EQ(launch.plan.tiles, 8);
  const ForwardParameters& p = launch.parameters;
  EXPECT_EQ(p.seqlen_q, 20);
  EXPECT_EQ(p.seqlen_kv, 30);
  EXPECT_EQ(p.heads, 4);
  EXPECT_EQ(p.m_tiles, 1);
  EXPECT_EQ(p.q.batch_stride, 20 * 4 * 64);
  EXPECT_EQ(p.q.row_stride, 4 * 64);
  EXPECT_EQ(p.q.head_stride, 64);
  EXPECT_EQ(p.v.row_stride, 2 * 32);
  EXPECT_FLOAT_EQ(p.scale, 0.125f);
  EXPECT_FLOAT_EQ(p.scale_log2, 0.125f * 1.44269504f);
  EXPECT_EQ(p.lse, nullptr);
}

TEST(Arguments, ScalarsAndTensorsOfExpressions) {
  Problem good;
  good.spec = parse_spec(
      "{head_dim: {qk: 64, v: 32}, gqa_ratio: 2, mask: 'q - kv < window', score: 'score + table[batch, kv]',"
      " scalars: {window: int}, tensors: {table: 'float32[batch, kv]'}}",
      "spec");
  good.arguments.scalars = {{"window", 7}};
  good.arguments.tensors = {{"table", TensorView{memory, DataType::fp32, {2, 30}, {}}}};
  EXPECT_EQ(refusal(good), "");
  const auto with = [&](auto change) {
    Problem problem = good;
    change(problem.arguments.scalars, problem.arguments.tensors);
    return refusal(problem);
  };
  EXPECT_EQ(with([](auto& scalars, auto&) { scalars.clear(); }),
            "scalar window is missing: the spec declares it");
  EXPECT_EQ(with([](auto& scalars, auto&) { scalars["window"] = 0.5; }),
            "scalar window is 0.5, expected an integer of 32 bits");
  EXPECT_EQ(with([](auto& scalars, auto&) { scalars["windw"] = 1; }),
            "scalar windw was given, but the spec declares window; nearest: window");
  EXPECT_EQ(with([](auto&, auto& tensors) { tensors["table"].shape = {30}; }),
            "tensor table has 1 dimensions, expected 2: float32[batch, kv]");
  EXPECT_EQ(with([](auto&, auto& tensors) { tensors["table"].dtype = DataType::bf16; }),
            "tensor table is bf16, expected fp32: float32[batch, kv]");
  EXPECT_EQ(with([](auto&, auto& tensors) { tensors["table"].shape[1] = 29; }),
            "tensor table: kv dimension is 29, expected 30 or 1");
  EXPECT_EQ(with([](auto&, auto& tensors) {
              tensors["table"].strides = {int64_t{1} << 60, 1};
            }),
            "tensor table: its strides reach beyond 2^59 elements");
  EXPECT_EQ(with([](auto&, auto& tensors) { tensors["table"].data = nullptr; }),
            "tensor table: data is null");
  EXPECT_EQ(with([](auto&, auto& tensors) { tensors["table"].shape = {1, 1}; }), "");

  Problem plain;
  plain.arguments.scalars = {{"cap", 1}};
  EXPECT_EQ(refusal(plain), "scalar cap was given, but the spec declares none");
}

TEST(Arguments, ContiguousFollowsTheLayout) {
  Problem problem;
  problem.spec.layout = Layout::bhsd;
  int64_t strides[4];
  effective_strides(problem.spec, problem.arguments.q, strides);
  EXPECT_EQ((std::vector<int64_t>(strides, strides + 4)),
            (std::vector<int64_t>{4 * 20 * 64, 64, 20 * 64, 1}));
  EXPECT_EQ(span_bytes(problem.arguments.q, strides), 2 * 2 * 20 * 4 * 64);
}

// Case E3, and broadcast inputs.
TEST(Arguments, StridesThatAreFine) {
  const std::pair<const char*, std::function<void(Problem&)>> cases[] = {
      {"size-1 dimensions may say anything",
       [](Problem& p) {
         p.arguments.q = {memory, DataType::bf16, {1, 1, 4, 64}, {-3, 7, 64, 1}};
         p.arguments.k.shape[0] = p.arguments.v.shape[0] = 1;
         p.arguments.out = {memory, DataType::bf16, {1, 1, 4, 32}, {0, 1, 32, 1}};
       }},
      {"inputs may be broadcast",
       [](Problem& p) {
         p.arguments.k.strides = {0, 64, 0, 1};
       }},
      {"heads outermost",
       [](Problem& p) {
         p.arguments.q.strides = {20 * 64, 64, 2 * 20 * 64, 1};
       }},
      {"gaps in the output",
       [](Problem& p) {
         p.arguments.out.strides = {100000, 1000, 40, 1};
       }},
      {"empty tensors need no memory",
       [](Problem& p) {
         p.arguments.k = {nullptr, DataType::bf16, {2, 0, 2, 64}, {}};
         p.arguments.v = {nullptr, DataType::bf16, {2, 0, 2, 32}, {}};
       }},
      {"lse with strides",
       [](Problem& p) {
         p.with_lse();
         p.arguments.lse->strides = {80, 20, 1};
       }},
  };
  for (const auto& [name, change] : cases) {
    Problem problem;
    change(problem);
    EXPECT_EQ(refusal(problem), "") << name;
  }
  Problem problem;
  cases[0].second(problem);
  PreparedLaunch launch = prepare_launch(problem.spec, {.block_m = 64}, problem.arguments);
  EXPECT_EQ(launch.parameters.q.row_stride, 0);
  EXPECT_EQ(launch.parameters.q.batch_stride, 0);
}

TEST(Arguments, Refusals) {
  const std::pair<const char*, std::function<void(Problem&)>> cases[] = {
      {"q has 3 dimensions, expected 4 (batch, sequence, heads, head_dim)",
       [](Problem& p) {
         p.arguments.q.shape = {20, 4, 64};
       }},
      {"k has 2 strides, expected 4 or none (contiguous)",
       [](Problem& p) {
         p.arguments.k.strides = {64, 1};
       }},
      {"v is fp16, the spec says bf16", [](Problem& p) { p.arguments.v.dtype = DataType::fp16; }},
      {"out is fp32, the spec says bf16", [](Problem& p) { p.arguments.out.dtype = DataType::fp32; }},
      {"k: sequence dimension is -1, expected at least 0", [](Problem& p) { p.arguments.k.shape[1] = -1; }},
      {"q: head_dim dimension is 56, expected 64 (the spec's head_dim.qk)",
       [](Problem& p) { p.arguments.q.shape[3] = 56; }},
      {"v: head_dim dimension is 64, expected 32 (the spec's head_dim.v)",
       [](Problem& p) { p.arguments.v.shape[3] = 64; }},
      {"k: batch dimension is 3, expected 2 (that of q)", [](Problem& p) { p.arguments.k.shape[0] = 3; }},
      {"q: head dimension is 5, expected a multiple of the spec's gqa_ratio 2",
       [](Problem& p) { p.arguments.q.shape[2] = 5; }},
      {"k: head dimension is 4, expected 2 (q's divided by the spec's gqa_ratio)",
       [](Problem& p) { p.arguments.k.shape[2] = 4; }},
      {"v: sequence dimension is 31, expected 30 (that of k)",
       [](Problem& p) { p.arguments.v.shape[1] = 31; }},
      {"out: sequence dimension is 21, expected 20 (that of q)",
       [](Problem& p) { p.arguments.out.shape[1] = 21; }},
      {"out: head dimension is 2, expected 4 (that of q)", [](Problem& p) { p.arguments.out.shape[2] = 2; }},
      {"q: data is null", [](Problem& p) { p.arguments.q.data = nullptr; }},
      {"expected a multiple of 16 bytes", [](Problem& p) { p.arguments.v.data = memory + 8; }},
      {"q: head_dim stride is 2, expected 1 (the last dimension must be contiguous)",
       [](Problem& p) {
         p.arguments.q.strides = {20480, 512, 128, 2};
       }},
      {"k: sequence stride is -128, expected at least 0",
       [](Problem& p) {
         p.arguments.k.strides = {3840, -128, 64, 1};
       }},
      {"k: head stride is 68 elements, expected a multiple of 8 (16 bytes)",
       [](Problem& p) {
         p.arguments.k.strides = {8000, 136, 68, 1};
       }},
      {"q: its strides reach beyond 2^59 elements",
       [](Problem& p) {
         p.arguments.q.strides = {int64_t{1} << 60, 256, 64, 1};
       }},
      {"out: its elements overlap: sequence stride is 64, expected at least 128",
       [](Problem& p) {
         p.arguments.out.strides = {2560, 64, 32, 1};
       }},
      {"out: its elements overlap: batch stride is 0, expected at least 1",
       [](Problem& p) {
         p.arguments.out.strides = {0, 128, 32, 1};
       }},
      {"lse is missing: the spec says `lse: true`", [](Problem& p) { p.spec.lse = true; }},
      {"lse was given, but the spec does not say `lse: true`",
       [](Problem& p) {
         p.with_lse();
         p.spec.lse = false;
       }},
      {"lse is bf16, the spec says fp32",
       [](Problem& p) {
         p.with_lse();
         p.arguments.lse->dtype = DataType::bf16;
       }},
      {"lse has 4 dimensions, expected 3 (batch, heads, sequence)",
       [](Problem& p) {
         p.with_lse();
         p.arguments.lse->shape = {2, 4, 20, 1};
       }},
      {"lse: sequence dimension is 4, expected 20 (that of q)",
       [](Problem& p) {
         p.with_lse();
         p.arguments.lse->shape = {2, 4, 4};
       }},
      {"lse: head stride is 24, expected 20 (lse must be contiguous)",
       [](Problem& p) {
         p.with_lse();
         p.arguments.lse->strides = {96, 24, 1};
       }},
      {"softmax_scale was given, but the spec does not say `softmax_scale: launch`",
       [](Problem& p) { p.arguments.softmax_scale = 1; }},
      {"softmax_scale is missing: the spec says `softmax_scale: launch`",
       [](Problem& p) { p.spec.softmax_scale_at_launch = true; }},
      {"softmax_scale is -1, expected 1e-12 to 1e+12",
       [](Problem& p) {
         p.spec.softmax_scale_at_launch = true;
         p.arguments.softmax_scale = -1;
       }},
      {"softmax_scale is nan",
       [](Problem& p) {
         p.spec.softmax_scale_at_launch = true;
         p.arguments.softmax_scale = NAN;
       }},
  };
  for (const auto& [message, change] : cases) {
    Problem problem;
    change(problem);
    EXPECT_NE(refusal(problem).find(message), std::string::npos)
        << "expected: " << message << "\ngot: " << refusal(problem);
  }
}

TEST(Arguments, AbsurdShapesAreRefused) {
  Problem problem;
  for (auto* view : {&problem.arguments.q, &problem.arguments.out}) view->shape[1] = int64_t{1} << 62;
  EXPECT_NE(refusal(problem).find("reach beyond 2^59 elements"), std::string::npos) << refusal(problem);
}

TEST(Arguments, ScaleAtLaunch) {
  Problem problem;
  problem.spec.softmax_scale_at_launch = true;
  problem.arguments.softmax_scale = 0.5;
  EXPECT_EQ(prepare_launch(problem.spec, {.block_m = 64}, problem.arguments).parameters.scale, 0.5f);
}

}  // namespace
}  // namespace tilewright
