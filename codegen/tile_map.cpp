#include "codegen/tile_map.h"

#include <algorithm>

#include "codegen/expression_ranges.h"
#include "codegen/kernel_expressions.h"

namespace tilewright {
namespace {

TileKind kind_of(bool may_hold, bool may_fail) {
  return !may_hold ? TileKind::empty : may_fail ? TileKind::mixed : TileKind::full;
}

/// Of positions [q0, q1] and keys [kv0, kv1].
TileKind window_tile(const Mask& mask, int64_t q0, int64_t q1, int64_t kv0, int64_t kv1) {
  const bool causal = mask.kind == Mask::Kind::causal || mask.kind == Mask::Kind::causal_top_left;
  const int64_t right = causal ? 0 : mask.right;
  bool may_hold = true, may_fail = false;
  if (right != Mask::unlimited) {
    may_hold = may_hold && kv0 - q1 <= right;
    may_fail = may_fail || kv1 - q0 > right;
  }
  if (mask.left != Mask::unlimited) {
    may_hold = may_hold && q0 - kv1 <= mask.left;
    may_fail = may_fail || q1 - kv0 > mask.left;
  }
  return kind_of(may_hold, may_fail);
}

RangeEnvironment environment_of(const KernelExpressions& expressions, const AttentionSpec& spec,
                                const LaunchShape& shape, const std::map<std::string, double>& scalars) {
  RangeEnvironment environment;
  environment.seqlen_q = {shape.seqlen_q, shape.seqlen_q};
  environment.seqlen_kv = {shape.seqlen_kv, shape.seqlen_kv};
  environment.head = {0, std::max<int64_t>(shape.heads - 1, 0)};
  environment.kv_head = {0, std::max<int64_t>(shape.heads / spec.gqa_ratio - 1, 0)};
  environment.batch = {0, std::max<int64_t>(shape.batch - 1, 0)};
  for (const auto& [name, value] : scalars) {
    const auto type = expressions.declarations.scalars.find(name);
    if (type == expressions.declarations.scalars.end()) continue;
    const auto integer = static_cast<long long>(value);
    const auto number = static_cast<float>(value);
    environment.scalars[name] = type->second == ScalarType::integer
                                    ? ValueRange::of(ranges::IntRange{integer, integer})
                                    : ValueRange::of(ranges::FloatRange{number, number});
  }
  return environment;
}

}  // namespace

int64_t TileMap::count(TileKind kind) const {
  return std::count(tiles.begin(), tiles.end(), kind);
}

double TileMap::skipped_share() const {
  return tiles.empty() ? 0 : static_cast<double>(count(TileKind::empty)) / static_cast<double>(tiles.size());
}

TileMap tile_map(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape,
                 const std::map<std::string, double>& scalars) {
  const int64_t m = schedule.block_m, n = schedule.block_n;
  const KernelExpressions expressions = kernel_expressions(spec);
  RangeEnvironment environment = environment_of(expressions, spec, shape, scalars);
  TileMap map{(shape.seqlen_q + m - 1) / m, (shape.seqlen_kv + n - 1) / n, {}};
  const bool top_left = expressions.window.kind == Mask::Kind::causal_top_left;
  const int64_t shift = top_left ? 0 : shape.seqlen_kv - shape.seqlen_q;
  for (int64_t row = 0; row < map.rows; ++row)
    for (int64_t column = 0; column < map.columns; ++column) {
      const int64_t q0 = row * m + shift, q1 = std::min(row * m + m, shape.seqlen_q) - 1 + shift;
      const int64_t kv0 = column * n, kv1 = std::min(kv0 + n, shape.seqlen_kv) - 1;
      TileKind kind = window_tile(expressions.window, q0, q1, kv0, kv1);
      if (expressions.mask) {
        environment.q = {q0, q1};
        environment.kv = {kv0, kv1};
        const ranges::Truth truth = range_of(*expressions.mask, environment).truth;
        kind = kind_of(truth.may_hold, truth.may_fail);
      }
      if (kind == TileKind::full && kv0 + n > shape.seqlen_kv) kind = TileKind::mixed;
      map.tiles.push_back(kind);
    }
  return map;
}

}  // namespace tilewright
