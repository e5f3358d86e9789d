#include "codegen/io_model.h"

#include <algorithm>

#include "codegen/kernel_expressions.h"

namespace tilewright {
namespace {

/// Keys [begin, end) that a query sees.
struct KeyRange {
  int64_t begin, end;
  int64_t size() const { return std::max<int64_t>(0, end - begin); }
};

KeyRange visible_keys(const Mask& mask, const LaunchShape& shape, int64_t query) {
  bool top_left = mask.kind == Mask::Kind::causal_top_left;
  int64_t position = query + (top_left ? 0 : shape.seqlen_kv - shape.seqlen_q);
  KeyRange keys{0, shape.seqlen_kv};
  bool window = mask.kind == Mask::Kind::window;
  if (window && mask.left != Mask::unlimited) keys.begin = position - mask.left;
  if (window && mask.right != Mask::unlimited) keys.end = position + mask.right + 1;
  if (mask.kind == Mask::Kind::causal || top_left) keys.end = position + 1;
  keys.begin = std::clamp<int64_t>(keys.begin, 0, shape.seqlen_kv);
  keys.end = std::clamp<int64_t>(keys.end, 0, shape.seqlen_kv);
  return keys;
}

/// The keys that a tile of query rows [first, last] touches, and what of it they all see.
struct TileRow {
  KeyRange some, all;
};

TileRow keys_of_rows(const Mask& mask, const LaunchShape& shape, int64_t first, int64_t last) {
  // Both ends grow with the query, so the first and the last row bound all rows between.
  KeyRange low = visible_keys(mask, shape, first), high = visible_keys(mask, shape, last);
  return {{low.begin, high.end}, {high.begin, low.end}};
}

}  // namespace

IoModel model_io(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape,
                 const MaskInputs& inputs) {
  IoModel model;
  const int64_t m = schedule.positions(), n = schedule.block_n;
  const int64_t key_tiles = (shape.seqlen_kv + n - 1) / n;
  int64_t rows_read = 0;                // rows of K that one head's query tiles read, all together
  int64_t first_row = shape.seqlen_kv;  // of the rows of K that any of them reads
  int64_t last_row = 0;
  double pairs = 0;
  const KernelExpressions expressions = kernel_expressions(spec);
  const Mask& mask = expressions.window;
  const TileMap map = expressions.mask ? tile_map(spec, schedule, shape, inputs) : TileMap{};
  for (int64_t row = 0; row < map.rows; ++row) {
    const int64_t rows = std::min(m, shape.seqlen_q - row * m);
    for (int64_t column = 0; column < map.columns; ++column) {
      const TileKind kind = map.at(row, column);
      if (kind == TileKind::empty) continue;
      const int64_t first = column * n, last = std::min(first + n, shape.seqlen_kv);
      pairs += static_cast<double>(rows * (last - first));
      rows_read += last - first;
      first_row = std::min(first_row, first);
      last_row = std::max(last_row, last);
    }
  }
  model.tiles.visited = map.count(TileKind::mixed) + map.count(TileKind::full);
  model.tiles.masked = map.count(TileKind::mixed);
  model.tiles.skipped = map.count(TileKind::empty);
  for (int64_t row = 0; row < shape.seqlen_q && !expressions.mask; row += m) {
    TileRow keys = keys_of_rows(mask, shape, row, std::min(row + m, shape.seqlen_q) - 1);
    if (keys.some.size() == 0) {
      model.tiles.skipped += key_tiles;
      continue;
    }
    int64_t begin = keys.some.begin / n, end = (keys.some.end + n - 1) / n;
    int64_t full_begin = (keys.all.begin + n - 1) / n, full_end = keys.all.end / n;
    int64_t full = std::max<int64_t>(0, std::min(full_end, end) - std::max(full_begin, begin));
    model.tiles.visited += end - begin;
    model.tiles.masked += end - begin - full;
    model.tiles.skipped += key_tiles - (end - begin);
    int64_t read_begin = begin * n, read_end = std::min(end * n, shape.seqlen_kv);
    rows_read += read_end - read_begin;
    first_row = std::min(first_row, read_begin);
    last_row = std::max(last_row, read_end);
  }
  for (int64_t query = 0; query < shape.seqlen_q && !expressions.mask; ++query) {
    pairs += static_cast<double>(visible_keys(mask, shape, query).size());
  }

  const double heads = static_cast<double>(shape.batch) * static_cast<double>(shape.heads);
  const double kv_heads = heads / spec.gqa_ratio;
  const double queries = static_cast<double>(shape.seqlen_q), keys = static_cast<double>(shape.seqlen_kv);
  const double flops_a_pair = 2.0 * (spec.head_dim.qk + spec.head_dim.v);
  model.work.visible_pairs = heads * pairs;
  model.work.needed = model.work.visible_pairs * flops_a_pair;
  model.work.done =
      heads * static_cast<double>(model.tiles.visited) * static_cast<double>(m * n) * flops_a_pair;

  const double key_bytes = (spec.head_dim.qk + spec.head_dim.v) * size_of(spec.dtype.kv);
  const double output_bytes = spec.head_dim.v * size_of(spec.dtype.out) + (spec.lse ? 4 : 0);
  model.traffic.queries = heads * queries * spec.head_dim.qk * size_of(spec.dtype.q);
  model.traffic.output = heads * queries * output_bytes;
  model.traffic.keys_once =
      kv_heads * static_cast<double>(std::max<int64_t>(0, last_row - first_row)) * key_bytes;
  model.traffic.keys_reread = heads / schedule.pack_group * static_cast<double>(rows_read) * key_bytes;
  model.traffic.scores = heads * queries * keys * 4 * size_of(spec.dtype.q);
  return model;
}

}  // namespace tilewright
