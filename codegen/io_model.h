// How much a launch computes and how many bytes it moves, by calculation: the tiled algorithm beside the one
// that materialises S and P, after the FlashAttention paper (Dao et al., 2022).
#pragma once

#include <cstdint>

#include "codegen/launch_plan.h"
#include "codegen/schedule.h"
#include "codegen/spec.h"
#include "codegen/tile_map.h"

namespace tilewright {

/// Tiles of one head's scores, `block_m` queries by `block_n` keys.
struct TileCounts {
  int64_t visited = 0;  // hold a visible score
  int64_t masked = 0;   // of these: hold an invisible one too, so that the mask is evaluated
  int64_t skipped = 0;  // hold no visible score and are never touched
};

/// Of a whole launch, in floating-point operations. Doubles, since products of four lengths can pass 2^63.
struct Work {
  double visible_pairs = 0;  // (query, key) pairs that the mask lets through
  double needed = 0;         // 2 (qk + v) for each of them
  double done = 0;           // 2 (qk + v) for every score of every visited tile
};

/// Of a whole launch, in bytes of device memory, after the model below. K and V count rows that some query
/// tile visits.
struct Traffic {
  double queries = 0;      // Q read once
  double output = 0;       // output (and LSE, if asked for) written once
  double keys_once = 0;    // K and V of every KV head read once: what a perfect L2 would leave
  double keys_reread = 0;  // K and V read again by every query tile of every query head: no L2 at all
  double scores = 0;  // S written and read, P written and read, every pair of every head: materialising only

  double tiled_least() const { return queries + keys_once + output; }
  double tiled_most() const { return queries + keys_reread + output; }
  double materialising() const { return queries + keys_once + output + scores; }
};

struct IoModel {
  TileCounts tiles;  // of one head
  Work work;
  Traffic traffic;
};

/// Pure arithmetic. Lengths as plan_launch takes them; `heads` divisible by the spec's gqa_ratio. Of a mask
/// expression as far as its analysis tells (codegen/tile_map.h): every pair of a visited tile counts as
/// visible.
IoModel model_io(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape,
                 const MaskInputs& inputs = {});

}  // namespace tilewright
