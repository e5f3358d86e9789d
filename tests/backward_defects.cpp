// Real backward kernels with one defect seeded into their text: the simulator or the comparison must find it.
#include <cmath>
#include <ostream>
#include <random>

#include "codegen/error.h"
#include "runtime/device.h"
#include "tests/support/backward_case.h"

namespace tilewright {
namespace {

struct Defect {
  const char* name;
  const char* text;
  const char* instead;
  const char* fault;  // of the simulator; "": a wrong answer
};

void PrintTo(const Defect& defect, std::ostream* out) {
  *out << defect.name;
}

/// One launch of changed text. What went wrong: the simulator's fault, "wrong answer", or nothing.
std::string outcome(const AttentionSpec& spec, const Defect* defect, uint64_t seed) {
  const Target& target = target_by_name("sm_80");
  const Schedule schedule = choose_schedule(spec, target);
  Source source = emit(spec, schedule, target, Backend::simulator);
  if (defect) {
    const size_t at = source.text.find(defect->text);
    if (at == std::string::npos) return "the text is not there";
    source.text.replace(at, std::string(defect->text).size(), defect->instead);
  }
  constexpr int64_t rows = 150, keys = 130, heads = 2, dim = 32;
  std::vector<uint16_t> q(rows * heads * dim), k(keys * dim), v(k), out(q), d_out(q), dq(q), dk(k), dv(k);
  std::vector<float> lse(rows * heads);
  std::mt19937_64 random(seed + 1);
  std::normal_distribution<double> normal;
  for (std::vector<uint16_t>* tensor : {&q, &k, &v, &d_out})
    for (size_t i = 0; i < tensor->size(); ++i)
      store_element(tensor->data(), DataType::bf16, static_cast<int64_t>(i), normal(random));
  const auto view = [&](std::vector<uint16_t>& tensor) {
    const int64_t tensor_heads = tensor.size() == q.size() ? heads : 1;
    const int64_t length = static_cast<int64_t>(tensor.size()) / tensor_heads / dim;
    return TensorView{tensor.data(), DataType::bf16, {1, length, tensor_heads, dim}, {}};
  };
  BackwardArguments arguments{.q = view(q),
                              .k = view(k),
                              .v = view(v),
                              .out = view(out),
                              .lse = {lse.data(), DataType::fp32, {1, heads, rows}, {}},
                              .d_out = view(d_out),
                              .dq = view(dq),
                              .dk = view(dk),
                              .dv = view(dv)};
  const ReferenceResult forward = plain_forward(forward_spec(spec), forward_part(arguments));
  for (size_t i = 0; i < out.size(); ++i)
    store_element(out.data(), DataType::bf16, static_cast<int64_t>(i), forward.out[i]);
  std::copy(forward.lse.begin(), forward.lse.end(), lse.begin());
  std::vector<float> workspace(workspace_size(spec, schedule, {1, heads, rows, keys}) / 4, std::nanf(""));
  arguments.workspace = workspace.data();
  arguments.workspace_bytes = workspace.size() * 4;

  const auto device = make_simulator_device({.seed = seed}, "sm_80");
  KernelCache cache({.disk = false});
  CacheResult from;
  try {
    device->load(spec, schedule, source, cache, from)
        ->launch(nullptr, prepare_backward(spec, schedule, arguments), arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return compare_backward(spec, arguments).ok ? "" : "wrong answer";
}

AttentionSpec spec_of(const char* more) {
  return parse_spec(
      std::string("{pass: backward, head_dim: 32, mask: causal, gqa_ratio: 2, blocks: {m: 64, n: 64, "
                  "warps: 4, stages: 2}") +
          more + "}",
      "spec");
}

TEST(BackwardText, IsSoundAsItIs) {
  for (const char* more : {"", ", deterministic: true", ", softcap: 20"})
    for (uint64_t seed = 0; seed < 3; ++seed) EXPECT_EQ(outcome(spec_of(more), nullptr, seed), "") << more;
}

class BackwardDefect : public testing::TestWithParam<Defect> {};

TEST_P(BackwardDefect, IsFound) {
  // Copies as late as allowed, and at once.
  std::string all;
  bool found = false;
  for (uint64_t seed : {1, 0}) {
    const std::string what = outcome(spec_of(""), &GetParam(), seed);
    found |= *GetParam().fault ? what.find(GetParam().fault) != std::string::npos : !what.empty();
    all += what + "\n";
  }
  EXPECT_TRUE(found) << all;
}

INSTANTIATE_TEST_SUITE_P(
    Sm80, BackwardDefect,
    testing::Values(
        Defect{"no_barrier_before_products", "block_barrier();  // P and dS are there for all", "", ""},
        Defect{"no_barrier_between_steps", "block_barrier();  // Q and dO are there for all", "//", ""},
        Defect{"no_wait_for_copies", "    copy_async_wait<0>();\n    block_barrier();",
               "    block_barrier();", ""},
        Defect{"one_stage_for_two", "stage ^= 1", "stage ^= 0", ""},
        Defect{"sums_not_zeroed", "global_store_16(sums + i, 0, 0, 0, 0)", "(void)sums", ""},
        Defect{"row_term_added", "(gradients[m][n][e] - rows.term", "(gradients[m][n][e] + rows.term", ""},
        Defect{"mask_left_out", "n_tile < seen.full_begin || n_tile >= seen.full_end", "false", ""},
        Defect{"same_head_again", "return {place.head_index + 1, tiles.begin}",
               "return {place.head_index, tiles.begin}", ""},
        Defect{"reads_beyond_the_end", "seqlen_q - row;\n  const TensorParameters",
               "seqlen_q;\n  const TensorParameters", ""}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tilewright
