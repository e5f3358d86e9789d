// What a kernel finds of each tile of scores: empty, full, or in need of its mask.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "codegen/expression_evaluate.h"
#include "codegen/launch_plan.h"
#include "codegen/schedule.h"
#include "codegen/spec.h"

namespace tilewright {

enum class TileKind : unsigned char { empty, mixed, full };

/// Of one head: row i holds the tiles of query rows from i * block_m on, from the first key to the last.
struct TileMap {
  int64_t rows = 0, columns = 0;
  std::vector<TileKind> tiles;
  TileKind at(int64_t row, int64_t column) const { return tiles[row * columns + column]; }
  int64_t count(TileKind kind) const;
  /// 0 to 1; 0 of no tiles.
  double skipped_share() const;
};

/// What is known of what a launch gives to a mask; the rest may be anything.
struct MaskInputs {
  std::map<std::string, double> scalars;
  /// Of a tensor, the element at indices that may lie outside of it (docs/expressions.md).
  std::map<std::string, std::function<Value(const std::vector<int64_t>& indices)>> tensors;
};

/// By the analysis that the kernel does, its tables of look-ups included. Where tensors are known, of the
/// first head of the first sequence; else of any.
TileMap tile_map(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape,
                 const MaskInputs& inputs = {});

}  // namespace tilewright
