// What a kernel finds of each tile of scores: empty, full, or in need of its mask.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

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

/// By the analysis that the kernel does. Scalars that are not given, and all look-ups, may be anything.
TileMap tile_map(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape,
                 const std::map<std::string, double>& scalars = {});

}  // namespace tilewright
