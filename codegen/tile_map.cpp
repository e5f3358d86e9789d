#include "codegen/tile_map.h"

#include <algorithm>

#include "codegen/expression_ranges.h"
#include "codegen/kernel_expressions.h"
#include "codegen/look_up_tables.h"

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
                                const LaunchShape& shape, const MaskInputs& inputs) {
  RangeEnvironment environment;
  environment.seqlen_q = {shape.seqlen_q, shape.seqlen_q};
  environment.seqlen_kv = {shape.seqlen_kv, shape.seqlen_kv};
  const bool one_head = !inputs.tensors.empty();
  const auto up_to = [&](int64_t count) {
    return ranges::IntRange{0, one_head ? 0 : std::max<int64_t>(count - 1, 0)};
  };
  environment.head = up_to(shape.heads);
  environment.kv_head = up_to(shape.heads / spec.gqa_ratio);
  environment.batch = up_to(shape.batch);
  for (const auto& [name, value] : inputs.scalars) {
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

/// What of tensors is known over a tile, as kernels know it.
class LookUps {
 public:
  LookUps(const KernelExpressions& expressions, const Schedule& schedule, const LaunchShape& shape,
          const MaskInputs& inputs)
      : inputs_(inputs), looked_up_(expressions.tables) {
    for (const auto& [name, value] : inputs.scalars) {
      const auto type = expressions.declarations.scalars.find(name);
      if (type == expressions.declarations.scalars.end()) continue;
      scalars_[name] = type->second == ScalarType::integer
                           ? Value::of(static_cast<int64_t>(value))
                           : Value::of(static_cast<double>(static_cast<float>(value)));
    }
    Environment environment{.seqlen_q = shape.seqlen_q, .seqlen_kv = shape.seqlen_kv, .scalars = &scalars_};
    environment.look_up = [&](const std::string& name, const std::vector<int64_t>& indices) {
      return inputs_.tensors.at(name)(indices);
    };
    for (const Expression& look_up : looked_up_)
      tables_.push_back(table(look_up, schedule, shape, environment));
  }

  void move_to(int64_t row, int64_t column) { row_ = row, column_ = column; }

  ValueRange range(const Expression& look_up, const std::vector<ranges::IntRange>& indices) const {
    const auto known = std::find(looked_up_.begin(), looked_up_.end(), look_up);
    if (known != looked_up_.end()) {
      const std::vector<ValueRange>& table = tables_[known - looked_up_.begin()];
      return table.empty() ? any_element(look_up) : table[is_by_key(look_up) ? column_ : row_];
    }
    const auto tensor = inputs_.tensors.find(look_up.name());
    const bool may_be_seen_through =
        look_up.type() == ValueType::integer && !look_up.uses(ExpressionVariable::kv) &&
        indices.back().high - indices.back().low < 1024 &&
        std::all_of(indices.begin(), indices.end() - 1, [](const auto& i) { return i.low == i.high; });
    if (tensor == inputs_.tensors.end() || !may_be_seen_through) return any_element(look_up);
    std::vector<int64_t> at;
    for (const ranges::IntRange& index : indices) at.push_back(index.low);
    ValueRange all = exactly(tensor->second(at));
    while (++at.back() <= indices.back().high) all = hull(all, exactly(tensor->second(at)));
    return all;
  }

 private:
  static ValueRange exactly(const Value& value) {
    if (value.type == ValueType::boolean) return ValueRange::of(ranges::exactly_bool(value.integer != 0));
    if (value.type == ValueType::integer) return ValueRange::of(ranges::exactly_int(value.integer));
    return ValueRange::of(ranges::exactly_float(static_cast<float>(value.number)));
  }

  static ValueRange hull(const ValueRange& a, const ValueRange& b) {
    const ranges::Truth either{true, true};
    if (a.type == ValueType::boolean) return ValueRange::of(ranges::choose_truth(either, a.truth, b.truth));
    if (a.type == ValueType::integer)
      return ValueRange::of(ranges::choose_int_range(either, a.integer, b.integer));
    return ValueRange::of(ranges::choose_float_range(either, a.number, b.number));
  }

  /// Empty: not known.
  std::vector<ValueRange> table(const Expression& look_up, const Schedule& schedule, const LaunchShape& shape,
                                Environment& environment) const {
    std::vector<ValueRange> table;
    std::set<std::string> names;
    collect_names(look_up, names);
    for (const std::string& name : names)
      if (!inputs_.tensors.count(name) && !scalars_.count(name)) return table;
    const bool by_key = is_by_key(look_up);
    const int64_t length = by_key ? shape.seqlen_kv : shape.seqlen_q;
    const int64_t size = by_key ? schedule.block_n : schedule.positions();
    for (int64_t i = 0; i < length; ++i) {
      environment.kv = i, environment.q = i + shape.seqlen_kv - shape.seqlen_q;
      const ValueRange value = exactly(evaluate(look_up, environment));
      if (i % size == 0)
        table.push_back(value);
      else
        table.back() = hull(table.back(), value);
    }
    return table;
  }

  const MaskInputs& inputs_;
  std::map<std::string, Value> scalars_;
  std::vector<Expression> looked_up_;
  std::vector<std::vector<ValueRange>> tables_;  // of those, by tile
  int64_t row_ = 0, column_ = 0;
};

}  // namespace

int64_t TileMap::count(TileKind kind) const {
  return std::count(tiles.begin(), tiles.end(), kind);
}

double TileMap::skipped_share() const {
  return tiles.empty() ? 0 : static_cast<double>(count(TileKind::empty)) / static_cast<double>(tiles.size());
}

TileMap tile_map(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape,
                 const MaskInputs& inputs) {
  const int64_t m = schedule.positions(), n = schedule.block_n;
  const KernelExpressions expressions = kernel_expressions(spec);
  RangeEnvironment environment = environment_of(expressions, spec, shape, inputs);
  LookUps look_ups(expressions, schedule, shape, inputs);
  environment.look_up = [&](const Expression& look_up, const std::vector<ranges::IntRange>& indices) {
    return look_ups.range(look_up, indices);
  };
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
        look_ups.move_to(row, column);
        const ranges::Truth truth = range_of(*expressions.mask, environment).truth;
        kind = kind_of(truth.may_hold, truth.may_fail);
      }
      if (kind == TileKind::full && kv0 + n > shape.seqlen_kv) kind = TileKind::mixed;
      map.tiles.push_back(kind);
    }
  return map;
}

}  // namespace tilewright
