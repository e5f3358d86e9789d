// Masks that the caller gives as lists of blocks, alone and with another mask.
#include "tests/support/attention_case.h"

namespace tilewright {
namespace {

using test::run_case;

class ForwardBlocks : public testing::TestWithParam<const char*> {
 protected:
  Runtime early{test::simulator_options(0, GetParam())}, late{test::simulator_options(1, GetParam())},
      mixed{test::simulator_options(7, GetParam())};
};

TEST_P(ForwardBlocks, DrawnListsWithOtherMasks) {
  int turn = 0;
  for (const char* keys :
       {"mask: {blocks: {m: 64, n: 64}}", "mask: {blocks: {m: 128, n: 128}, with: causal}, gqa_ratio: 2",
        "mask: {blocks: {m: 64, n: 48}, with: {window: [70, 9]}}, dtype: fp16",
        "mask: {blocks: {m: 192, n: 32}, with: causal_top_left}, softcap: 15, sinks: true",
        "mask: {blocks: {m: 64, n: 64}, with: \"q >= kv && (q - kv) % 3 != 1\"}, layout: bhsd",
        "mask: {blocks: {m: 256, n: 64}}, blocks: {stages: 3, n: 16}"}) {
    Runtime* runtimes[] = {&early, &late, &mixed};
    for (auto [q, kv] : {std::pair(200, 333), std::pair(65, 64)})
      run_case(*runtimes[turn++ % 3], {.spec = std::string("{head_dim: 32, lse: true, ") + keys + "}",
                                       .batch = 2,
                                       .heads_kv = 2,
                                       .seqlen_q = q,
                                       .seqlen_kv = kv,
                                       .seed = static_cast<uint64_t>(turn)});
  }
}

TEST_P(ForwardBlocks, HeadDims) {
  for (const char* dim : {"64", "128", "{qk: 192, v: 128}", "256"})
    run_case(mixed,
             {.spec = std::string("{lse: true, mask: {blocks: {m: 64, n: 64}, with: causal}, head_dim: ") +
                      dim + "}",
              .seqlen_q = 130,
              .seqlen_kv = 200});
}

// One list for all batches and heads; rows without blocks see nothing.
TEST_P(ForwardBlocks, EmptyRowsAndOneListForAll) {
  const auto result = run_case(mixed, {.spec = "{head_dim: 64, lse: true, mask: {blocks: {m: 64, n: 64}}}",
                                       .batch = 2,
                                       .heads_kv = 3,
                                       .seqlen_q = 192,
                                       .seqlen_kv = 192,
                                       .blocks = {{{{0, 2}, {}, {1}}}}});
  for (int row = 64; row < 128; ++row) {
    EXPECT_EQ(result.out_at(1, row, 2, 5), 0.0);
    EXPECT_EQ(result.lse_at(1, 2, row), -std::numeric_limits<double>::infinity());
  }
}

// Any order is right, if not as fast; blocks that do not exist are passed over, inside of the tensors.
TEST_P(ForwardBlocks, OrderAndNumbersOutOfRange) {
  run_case(mixed, {.spec = "{head_dim: 64, lse: true, mask: {blocks: {m: 64, n: 64}}}",
                   .seqlen_q = 130,
                   .seqlen_kv = 150,
                   .blocks = {{{{2, 0, 1}, {1, 2}, {2, 1}}}}});
  run_case(mixed, {.spec = "{head_dim: 64, lse: true, mask: {blocks: {m: 64, n: 64}, with: causal}}",
                   .seqlen_q = 100,
                   .seqlen_kv = 150,
                   .blocks = {{{{-1, 0, 7, 2000000000}, {INT32_MIN, 1, INT32_MAX}}}}});
}

// A list of all blocks is the mask that it stands beside, to the last bit.
TEST_P(ForwardBlocks, AllBlocksChangeNothing) {
  const auto with = [&](const char* mask) {
    return run_case(
        mixed, {.spec = std::string("{head_dim: 64, lse: true, blocks: {m: 64, n: 64}, mask: ") + mask + "}",
                .seqlen_q = 128,
                .seqlen_kv = 180,
                .blocks = {{{{0, 1, 2}, {0, 1, 2}}}}});
  };
  const auto listed = with("{blocks: {m: 64, n: 64}, with: causal}"), plain = with("causal");
  EXPECT_EQ(listed.out.live_bytes(), plain.out.live_bytes());
  EXPECT_EQ(listed.lse.live_bytes(), plain.lse.live_bytes());
}

INSTANTIATE_TEST_SUITE_P(Simulator, ForwardBlocks, testing::Values("sm_80", "sm_90a"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tilewright
