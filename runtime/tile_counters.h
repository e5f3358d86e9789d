// The counters by which the blocks of an sm90 launch share its tiles.
//
// A counter serves one launch at a time and is zero between launches. Launches on one stream follow each
// other, so each stream that launches a kernel gets a counter of that kernel, found without a lock.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "codegen/launch_plan.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// A place for each of the first streams that ask. Places are never given back.
class StreamSlots {
 public:
  static constexpr int count = 64;
  /// The place of a stream, by an id that is never used again; -1: all are taken. Thread-safe and lock-free.
  int find_or_claim(uint64_t stream_id) noexcept;

 private:
  std::atomic<uint64_t> owners_[count] = {};  // id + 1; 0: free
};

/// Counters of one kernel, in device memory. The kernel's context must be current throughout.
class TileCounters {
 public:
  TileCounters();
  /// Waits for the kernel's launches.
  ~TileCounters();
  TileCounters(const TileCounters&) = delete;
  TileCounters& operator=(const TileCounters&) = delete;

  /// Two ints, zero, to be left zero, for one launch on `stream`; null where launches may overlap or no
  /// counter is left: each block then computes one tile.
  int* counters_for(CUstream stream) noexcept;

 private:
  CUdeviceptr memory_ = 0;
  StreamSlots slots_;
};

/// How many blocks a launch that shares its tiles starts, or clusters of as many blocks: one block for each
/// multiprocessor but those of the margin. Throws Error(usage) for a margin that leaves none.
int blocks_to_share_tiles(int multiprocessors, const LaunchOptions& options, int cluster);

/// Whether blocks have tiles to share: more of them than `blocks`, and no number of a tile (they are drawn up
/// to `blocks` beyond the last) that passes 2^31 - 1.
bool tiles_to_share(int64_t tiles, int blocks);

}  // namespace tilewright
