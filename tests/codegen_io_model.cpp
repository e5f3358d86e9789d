// The IO model against numbers worked out by hand, and its tile counts against the mask's definition.
#include "codegen/io_model.h"

#include <gtest/gtest.h>

#include <string>

namespace tilewright {
namespace {

AttentionSpec spec_of(const std::string& yaml) {
  return parse_spec(yaml, "spec.yaml");
}

Schedule blocks(int m, int n) {
  return {.block_m = m, .block_n = n, .warps = 1, .stages = 2};
}

TEST(IoModel, DenseByHand) {
  // 2 batches of 4 query heads over 2 KV heads: 8 and 4 in all. 128 queries in 2 tiles, 96 keys in 3.
  IoModel model = model_io(spec_of("head_dim: 64\ngqa_ratio: 2"), blocks(64, 32), {2, 4, 128, 96});
  EXPECT_EQ(model.tiles.visited, 6);
  EXPECT_EQ(model.tiles.masked, 0);
  EXPECT_EQ(model.tiles.skipped, 0);
  EXPECT_EQ(model.work.visible_pairs, 8 * 128 * 96);
  EXPECT_EQ(model.work.needed, 8 * 128 * 96 * 256);
  EXPECT_EQ(model.work.done, model.work.needed);
  EXPECT_EQ(model.traffic.queries, 8 * 128 * 64 * 2);
  EXPECT_EQ(model.traffic.output, 8 * 128 * 64 * 2);
  EXPECT_EQ(model.traffic.keys_once, 4 * 96 * 128 * 2);
  EXPECT_EQ(model.traffic.keys_reread, 8 * 2 * 96 * 128 * 2);
  EXPECT_EQ(model.traffic.scores, 8 * 128 * 96 * 4 * 2);
  EXPECT_EQ(model.traffic.tiled_least(), 131072 + 98304 + 131072);
  EXPECT_EQ(model.traffic.tiled_most(), 131072 + 393216 + 131072);
  EXPECT_EQ(model.traffic.materialising(), 131072 + 98304 + 131072 + 786432);
}

TEST(IoModel, CausalByHand) {
  // 4 by 4 tiles of 64: the triangle has 10, 4 of them on the diagonal. Query i sees i + 1 keys.
  IoModel model = model_io(spec_of("head_dim: {qk: 192, v: 128}\nmask: causal\nlse: true"), blocks(64, 64),
                           {1, 1, 256, 256});
  EXPECT_EQ(model.tiles.visited, 10);
  EXPECT_EQ(model.tiles.masked, 4);
  EXPECT_EQ(model.tiles.skipped, 6);
  EXPECT_EQ(model.work.visible_pairs, 256 * 257 / 2);
  EXPECT_EQ(model.work.done, 10 * 64 * 64 * 640);
  EXPECT_EQ(model.traffic.output, 256 * (128 * 2 + 4));
  EXPECT_EQ(model.traffic.keys_once, 256 * 320 * 2);
  EXPECT_EQ(model.traffic.keys_reread, 640 * 320 * 2);
}

TEST(IoModel, KeysThatNobodySeesAreNotRead) {
  // Bottom-right: query i stands at key 192 + i, and sees it and the 15 before: keys 177 to 255, tiles 5 to 7
  // of 32.
  IoModel model = model_io(spec_of("head_dim: 64\nmask: {window: [15, 0]}"), blocks(64, 32), {1, 1, 64, 256});
  EXPECT_EQ(model.tiles.visited, 3);
  EXPECT_EQ(model.tiles.skipped, 5);
  EXPECT_EQ(model.traffic.keys_once, 96 * 256);
}

TEST(IoModel, NothingToDo) {
  for (LaunchShape shape : {LaunchShape{0, 4, 64, 64}, LaunchShape{1, 4, 0, 64}, LaunchShape{1, 4, 64, 0}}) {
    IoModel model = model_io(spec_of("head_dim: 64\nmask: causal"), blocks(64, 64), shape);
    EXPECT_EQ(model.work.needed, 0);
    EXPECT_EQ(model.traffic.scores, 0);
  }
}

/// The definition, in codegen/spec.h.
bool sees(const Mask& mask, const LaunchShape& shape, int64_t query, int64_t key) {
  int64_t position =
      query + (mask.kind == Mask::Kind::causal_top_left ? 0 : shape.seqlen_kv - shape.seqlen_q);
  if (mask.kind == Mask::Kind::none) return true;
  if (mask.kind != Mask::Kind::window) return key <= position;
  return (mask.left == Mask::unlimited || key >= position - mask.left) &&
         (mask.right == Mask::unlimited || key <= position + mask.right);
}

TEST(IoModel, TilesFollowTheMask) {
  const char* masks[] = {"none",
                         "causal",
                         "causal_top_left",
                         "{window: [20, 0]}",
                         "{window: [64, -32]}",
                         "{window: [inf, 5]}",
                         "{window: [5, inf]}",
                         "{window: [-3, 40]}"};
  const LaunchShape shapes[] = {
      {1, 1, 100, 100}, {1, 1, 64, 8}, {1, 1, 8, 64}, {1, 1, 33, 130}, {1, 1, 130, 33}};
  for (const char* mask : masks) {
    AttentionSpec spec = spec_of("head_dim: 64\nmask: " + std::string(mask));
    for (const LaunchShape& shape : shapes) {
      SCOPED_TRACE(std::string(mask) + " " + std::to_string(shape.seqlen_q) + " x " +
                   std::to_string(shape.seqlen_kv));
      const int64_t m = 32, n = 16;
      int64_t visible = 0, visited = 0, masked = 0, skipped = 0;
      for (int64_t row = 0; row < shape.seqlen_q; row += m) {
        for (int64_t column = 0; column < shape.seqlen_kv; column += n) {
          int64_t seen = 0, unseen = 0;
          for (int64_t query = row; query < std::min(row + m, shape.seqlen_q); ++query) {
            for (int64_t key = column; key < column + n; ++key) {
              bool in = key < shape.seqlen_kv && sees(spec.mask, shape, query, key);
              ++(in ? seen : unseen);
            }
          }
          visible += seen;
          ++(seen > 0 ? visited : skipped);
          if (seen > 0 && unseen > 0) ++masked;
        }
      }
      IoModel model = model_io(spec, blocks(m, n), shape);
      EXPECT_EQ(model.work.visible_pairs, visible);
      EXPECT_EQ(model.tiles.visited, visited);
      EXPECT_EQ(model.tiles.masked, masked);
      EXPECT_EQ(model.tiles.skipped, skipped);
    }
  }
}

}  // namespace
}  // namespace tilewright
