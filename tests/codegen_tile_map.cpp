#include "codegen/tile_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "codegen/expression_evaluate.h"
#include "codegen/io_model.h"
#include "codegen/kernel_expressions.h"
#include "codegen/look_up_tables.h"

namespace tilewright {
namespace {

const Schedule schedule{Family::sm80, 64, 32, 4, 1};

TileMap map_of(const std::string& mask, const LaunchShape& shape,
               const std::map<std::string, double>& scalars = {}) {
  return tile_map(parse_spec("{head_dim: 64, mask: " + mask + "}", "spec"), schedule, shape,
                  {.scalars = scalars});
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

/// Sequences of a launch of 130 queries and 200 keys.
MaskInputs inputs_of(int64_t first) {
  const auto at = [](const std::vector<int64_t>& i) { return std::clamp<int64_t>(i[0], 0, 199); };
  MaskInputs inputs;
  inputs.tensors["document"] = [=](const auto& i) { return Value::of(int64_t{at(i) < first ? 3 : 5}); };
  inputs.tensors["start"] = [=](const auto& i) { return Value::of(int64_t{at(i) < first ? 0 : first}); };
  inputs.tensors["weight"] = [=](const auto& i) {
    return Value::of(at(i) == 40 ? std::nan("") : static_cast<double>(at(i) / 32));
  };
  return inputs;
}

// Tensors that are known take part as they do in kernels.
TEST(TileMap, LooksThroughTensors) {
  const LaunchShape shape{1, 1, 130, 200};
  const auto spec_of = [](const std::string& mask, const std::string& tensor) {
    return parse_spec("{head_dim: 64, mask: \"" + mask + "\", tensors: {" + tensor + "}}", "spec");
  };
  const AttentionSpec by_key = spec_of("document[q] == document[kv]", "document: 'int32[kv]'");
  EXPECT_EQ(tile_map(by_key, schedule, shape).count(TileKind::mixed), 21)
      << "of an unknown tensor nothing is known";
  const TileMap halves =
      tile_map(by_key, schedule, shape, inputs_of(134));  // the second row of tiles begins there
  for (int64_t column = 0; column < 7; ++column) {
    EXPECT_EQ(halves.at(0, column), column < 4    ? TileKind::full
                                    : column == 4 ? TileKind::mixed
                                                  : TileKind::empty);
    EXPECT_EQ(halves.at(1, column), column < 4    ? TileKind::empty
                                    : column == 4 ? TileKind::mixed
                                    : column < 6  ? TileKind::full
                                                  : TileKind::mixed);
  }
  const AttentionSpec by_query = spec_of("kv >= start[q]", "start: 'int32[kv]'");
  EXPECT_EQ(tile_map(by_query, schedule, shape, inputs_of(134)).count(TileKind::empty), 8);
  const AttentionSpec floats = spec_of("weight[kv] > 4.5", "weight: 'float32[kv]'");
  const TileMap weighed = tile_map(floats, schedule, shape, inputs_of(0));
  for (int64_t column = 0; column < 7; ++column)
    EXPECT_EQ(weighed.at(0, column), column == 1  ? TileKind::mixed  // NaN
                                     : column < 5 ? TileKind::empty
                                     : column < 6 ? TileKind::full
                                                  : TileKind::mixed);
  EXPECT_EQ(model_io(by_key, schedule, shape, inputs_of(134)).tiles.skipped, halves.count(TileKind::empty));
  for (int64_t first : {0, 1, 77, 134, 135, 199})
    for (const AttentionSpec& spec : {by_key, by_query}) {
      const MaskInputs inputs = inputs_of(first);
      const TileMap map = tile_map(spec, schedule, shape, inputs);
      Environment environment{.seqlen_q = 130, .seqlen_kv = 200};
      environment.look_up = [&](const std::string& name, const std::vector<int64_t>& indices) {
        return inputs.tensors.at(name)(indices);
      };
      for (int64_t row = 0; row < 130; ++row)
        for (int64_t key = 0; key < 200; ++key) {
          environment.q = row + 70, environment.kv = key;
          const bool visible = evaluate(*spec.mask.expression, environment).integer != 0;
          const TileKind kind = map.at(row / 64, key / 32);
          EXPECT_FALSE((kind == TileKind::empty && visible) || (kind == TileKind::full && !visible))
              << first << " row " << row << " key " << key;
        }
    }
}

TEST(KernelExpressions, TablesOfLookUps) {
  const auto tables = [](const std::string& mask, const std::string& more = "") {
    std::string text;
    for (const Expression& table : look_up_tables(parse_spec(
             "{head_dim: 64, mask: \"" + mask + "\", tensors: {a: 'int32[kv]', b: 'int32[q]'}" + more + "}",
             "spec")))
      text += to_text(table) + "; ";
    return text;
  };
  EXPECT_EQ(tables("a[kv] == b[q]"), "a[kv]; b[q]; ");
  EXPECT_EQ(tables("a[q] == a[kv] && b[a[kv]] < 4 && a[kv] != 2"), "a[q]; a[kv]; b[a[kv]]; ");
  EXPECT_EQ(tables("a[q - kv] == 0 && b[0] == 1 && b[q] > 3 && a[q] < 4"), "") << "none by kv alone";
  EXPECT_EQ(tables("a[kv] == b[q]", ", layout: packed"), "");
  EXPECT_EQ(tables("a[kv] == b[q]", ", pass: backward"), "a[kv]; ");
  std::string many;
  for (int i = 0; i < 20; ++i) many += (i ? " && " : "") + ("a[kv + " + std::to_string(i)) + "] < b[q]";
  const std::string all = tables(many);
  EXPECT_EQ(std::count(all.begin(), all.end(), ';'), 16);
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

// The same kernel as with `softcap: 50`, whichever way it is written.
TEST(KernelExpressions, APlainSoftcapIsNoExpression) {
  const auto expressions = [](const std::string& keys) {
    return kernel_expressions(parse_spec("{head_dim: 64, " + keys + "}", "spec"));
  };
  for (const char* score : {"50 * tanh(score / 50)", "tanh(score / 50.0) * 50"}) {
    const std::string key = std::string("score: \"") + score + "\"";
    EXPECT_FALSE(expressions(key).any()) << score;
    EXPECT_EQ(expressions(key).softcap, 50) << score;
    EXPECT_TRUE(expressions(key + ", alibi: true").score) << score;
    EXPECT_EQ(expressions(key + ", alibi: true").softcap, 50) << "ALiBi comes after it";
    EXPECT_EQ(expressions(key + ", softcap: 30").softcap, 30) << "and this one before";
    EXPECT_TRUE(expressions(key + ", softcap: 30").score);
  }
  for (const char* score : {"50 * tanh(score / 30)", "50 * tanh(score)", "50 * tanh(50 / score)",
                            "50 * tanh(score / 50) + 1", "1e9 * tanh(score / 1e9)"}) {
    const KernelExpressions other = expressions(std::string("score: \"") + score + "\"");
    EXPECT_TRUE(other.score) << score;
    EXPECT_EQ(other.softcap, 0) << score;
  }
}

}  // namespace
}  // namespace tilewright
