// Backward masks that look up by key: which tiles of query rows a tile of keys is visited by.
#include <cmath>

#include "tests/support/backward_grid.h"

namespace tilewright {
namespace {

using test::AttentionCase;
using test::BackwardResult;
using test::run_backward;

class BackwardTables : public testing::TestWithParam<std::string> {
 protected:
  Runtime runtime{test::simulator_options(4, GetParam())};
};

// A tile that is visited brings in its gradients, hidden or not: 0 * NaN is NaN.
TEST_P(BackwardTables, RowsOfOtherDocumentsAreNotVisited) {
  constexpr int64_t rows = 384, first = 256;  // of the second document: a multiple of every tile
  AttentionCase attention = {
      .spec =
          "{pass: backward, head_dim: 16, mask: \"document[q] == document[kv]\", tensors: {document: "
          "'int32[kv]'}}",
      .seqlen_q = rows,
      .seqlen_kv = rows,
      .tensors = {{"document", {{rows}, [](const auto& i) { return i[0] < first ? 4 : 2; }}}}};
  const BackwardResult expected = run_backward(runtime, attention);
  attention.adjust = [](char tensor, int64_t, int64_t row, int64_t, int64_t, double value) {
    return tensor == 'd' && row >= first ? std::nan("") : value;
  };
  const BackwardResult result = run_backward(runtime, attention, false);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < 16; ++column) {
      const int64_t at = row * 16 + column;
      if (row >= first) {
        EXPECT_TRUE(std::isnan(result.dv.get(at))) << row;
      } else {
        EXPECT_EQ(result.dv.get(at), expected.dv.get(at)) << row;
        EXPECT_EQ(result.dk.get(at), expected.dk.get(at)) << row;
      }
    }
}

TEST_P(BackwardTables, OfEveryType) {
  for (const char* mask :
       {"keep[batch, kv] && kv <= q", "weight[kv] < limit[q]", "place[head, kv] != place[head, q]"})
    for (const char* more : {"", ", deterministic: true"}) {
      const std::string text = mask;
      std::string tensors;
      for (const char* tensor : {"keep: 'bool[batch, kv]'", "weight: 'float32[kv]'", "limit: 'float32[q]'",
                                 "place: 'int32[head, kv]'"})
        if (text.find(std::string(tensor, 4)) != text.npos)
          tensors += (tensors.empty() ? "" : ", ") + std::string(tensor);
      run_backward(
          runtime,
          {.spec = "{pass: backward, head_dim: 16, gqa_ratio: 2, mask: \"" + text + "\", tensors: {" +
                   tensors + "}" + more + "}",
           .batch = 2,
           .seqlen_q = 150,
           .seqlen_kv = 210,
           .tensors = {
               {"keep", {{2, 210}, [](const auto& i) { return i[0] ? i[1] / 70 != 1 : i[1] % 128 == 127; }}},
               {"weight",
                {{210},
                 [](const auto& i) -> double {
                   return i[0] == 150 ? std::nan("") : static_cast<double>(i[0] / 64);
                 }}},
               {"limit", {{150}, [](const auto& i) -> double { return static_cast<double>(i[0] / 50); }}},
               {"place", {{2, 210}, [](const auto& i) { return (i[1] + 64 * i[0]) / 128; }}}}});
    }
}

INSTANTIATE_TEST_SUITE_P(Simulator, BackwardTables, testing::ValuesIn(test::backward_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tilewright
