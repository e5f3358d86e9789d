#include "codegen/tile_map.h"

#include <gtest/gtest.h>

#include "codegen/expression_evaluate.h"
#include "codegen/io_model.h"
#include "codegen/kernel_expressions.h"

namespace tilewright {
namespace {

const Schedule schedule{Family::sm80, 64, 32, 4, 1};

TileMap map_of(const std::string& mask, const LaunchShape& shape,
               const std::map<std::string, double>& scalars = {}) {
  return tile_map(parse_spec("{head_dim: 64, mask: " + mask + "}", "spec"), schedule, shape, scalars);
}

TEST(TileMap, EqualMasksHaveEqualMaps) {
  for (const LaunchShape& shape : {LaunchShape{1, 1, 200, 333}, LaunchShape{1, 1, 333, 200}}) {
    EXPECT_EQ(map_of("causal", shape).tiles, map_of("\"kv <= q\"", shape).tiles);
    const auto window = map_of("{window: [70, 5]}", shape).tiles;
    EXPECT_EQ(window, map_of("\"q - kv <= 70 && kv - q <= 5\"", shape).tiles);
    EXPECT_EQ(window, map_of("\"q - kv <= w && kv - q <= 5\", scalars: {w: int}", shape, {{"w", 70}}).tiles);
  }
}

TEST(TileMap, CountsAreThoseOfTheModel) {
  for (const char* mask :
       {"none", "causal", "causal_top_left", "{window: [70, 5]}", "\"kv <= q || kv < 40\""})
    for (const LaunchShape& shape :
         {LaunchShape{1, 1, 200, 333}, LaunchShape{1, 1, 320, 320}, LaunchShape{1, 1, 0, 5}}) {
      const AttentionSpec spec = parse_spec(std::string("{head_dim: 64, mask: ") + mask + "}", "spec");
      const TileMap map = tile_map(spec, schedule, shape);
      const TileCounts counts = model_io(spec, schedule, shape).tiles;
      EXPECT_EQ(map.count(TileKind::empty), counts.skipped) << mask;
      EXPECT_EQ(map.count(TileKind::mixed), counts.masked) << mask;
      EXPECT_EQ(map.count(TileKind::full), counts.visited - counts.masked) << mask;
    }
}

// Every tile that is called empty or full is.
TEST(TileMap, TellsTheTruth) {
  const LaunchShape shape{1, 1, 130, 200};
  for (const char* mask : {"\"q >= kv && (q - kv < 20 || kv / 16 % 3 == 0)\"", "\"q / 48 == kv / 48\"",
                           "\"(q + kv) % 2 == 0\""}) {
    const AttentionSpec spec = parse_spec(std::string("{head_dim: 64, mask: ") + mask + "}", "spec");
    const TileMap map = tile_map(spec, schedule, shape);
    for (int64_t row = 0; row < shape.seqlen_q; ++row)
      for (int64_t key = 0; key < shape.seqlen_kv; ++key) {
        Environment environment;
        environment.q = row + shape.seqlen_kv - shape.seqlen_q;
        environment.kv = key;
        const bool visible = evaluate(*spec.mask.expression, environment).integer != 0;
        const TileKind kind = map.at(row / 64, key / 32);
        EXPECT_FALSE((kind == TileKind::empty && visible) || (kind == TileKind::full && !visible))
            << mask << " row " << row << " key " << key;
      }
  }
}

TEST(TileMap, FirstKeysAndAWindowSkipWhatLiesBetween) {  // B6
  const TileMap map = map_of("\"q >= kv && (q - kv < 96 || kv < 4)\"", {1, 4, 320, 320});
  std::string last;
  for (int64_t column = 0; column < map.columns; ++column)
    last += "./#"[static_cast<int>(map.at(map.rows - 1, column))];
  EXPECT_EQ(last[0], '/');
  EXPECT_EQ(last.substr(1, 4), "....");
  EXPECT_NE(last[9], '.');
}

TEST(KernelExpressions, PlainWindowsAreNoExpressions) {
  const auto expressions = [](const std::string& mask) {
    return kernel_expressions(parse_spec("{head_dim: 64, mask: " + mask + "}", "spec"));
  };
  for (const char* mask :
       {"\"kv <= q\"", "\"!(kv > q)\"", "\"q - kv >= 0 && q < kv + 100\"", "\"abs(q - kv) <= 8\""})
    EXPECT_FALSE(expressions(mask).any()) << mask;
  EXPECT_EQ(expressions("\"kv <= q || kv < 7\"").walk, KeyWalkKind::range);
  EXPECT_EQ(expressions("\"q / 64 == kv / 64 && kv <= q\"").walk, KeyWalkKind::range);
  EXPECT_EQ(expressions("\"q >= kv && (q - kv) % 2 == 0\"").walk, KeyWalkKind::scan);
}

}  // namespace
}  // namespace tilewright
