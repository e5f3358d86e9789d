// What one launch of the backward pass needs for given shapes: grids and the workspace. Pure arithmetic.
#pragma once

#include <cstdint>

#include "codegen/schedule.h"
#include "codegen/spec.h"

namespace tilewright {

/// Floats of the workspace in which one tile of query rows of one head sums up dQ, a multiple of 4: what a
/// family keeps for it, in whatever order it likes.
int dq_tile_floats(const AttentionSpec& spec, const Schedule& schedule);

/// `deterministic`: parts of a tile of query rows whose sums have an order of their own.
int turns_per_tile(const Schedule& schedule);

/// Where the parts of the workspace lie, in bytes from its start; each is aligned to 256 bytes.
struct BackwardWorkspace {
  int64_t dq_sums = 0;     // fp32, dq_tile_floats a tile of query rows
  int64_t lse_log2 = 0;    // fp32, a value a row of whole tiles
  int64_t row_terms = 0;   // the same
  int64_t turns = 0;       // `deterministic`: turns_per_tile ints a tile of query rows, and one more
  int64_t sink_terms = 0;  // `sinks`: 4 floats a tile of query rows
  int64_t row_ranges =
      0;              // a mask expression: 4 ints a tile of keys, of each KV head if the mask knows heads
  int64_t bytes = 0;  // all together
};

struct BackwardPlan {
  int64_t m_tiles = 0;  // tiles of query rows a head
  int64_t n_tiles = 0;  // tiles of keys a KV head
  int64_t query_blocks =
      0;  // tiles of query rows of all heads and batches: blocks before and after the main kernel
  int64_t finish_blocks = 0;  // behind the main kernel: those, and with sinks one a query head
  int64_t key_blocks = 0;     // tiles of keys of all KV heads and batches: blocks of the main kernel
  int64_t section_heads = 1;  // KV heads whose tiles are computed together
  BackwardWorkspace workspace;
};

/// Layout packed: `shape` holds the number of sequences, and the rows of all of them together. Throws
/// Error(usage) if a grid would pass 2^31 - 1 blocks or a length 2^31 - 1.
BackwardPlan plan_backward(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape);

/// What `workspace_size` and `plan_backward` take of a spec with layout packed: mean lengths become those of
/// all sequences together. Other shapes are left as they are.
LaunchShape all_sequences(const AttentionSpec& spec, LaunchShape shape);

}  // namespace tilewright
