// Barriers other than the block's: mbarriers in shared memory, named barriers, and who waits at them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "simulator/clock.h"
#include "simulator/place.h"
#include "simulator/race_checker.h"

namespace tilewright::simulator {

/// Lanes by warp.
using Waiters = std::vector<uint32_t>;

/// An mbarrier (PTX ISA 9.7.13.15). A phase is over when all its arrivals have come and as many bytes as were
/// expected; the next one begins at once.
struct MemoryBarrier {
  int index = 0;        // in the order of initialisation
  int arrivals = 0;     // of a phase
  int pending = 0;      // arrivals that the current phase still waits for
  int64_t bytes = 0;    // expected minus brought; may be negative for a while
  uint32_t phases = 0;  // that are over
  RaceChecker::Moment initialised;
  bool fenced = false;  // known to the copy engine
  Place place;          // of the initialisation
  Clock arriving;       // of all arrivals so far
  Clock over;           // of those up to the end of the last phase
  Waiters waiting;

  /// Waiting for a parity succeeds when the last phase that is over has it; a fresh barrier counts as past 1.
  bool is_over(int parity) const { return static_cast<int>(phases & 1) != parity; }
  /// Ends the phase if nothing is missing: true, then those who wait are to be woken.
  bool advance();
};

/// The mbarriers of a block, or of a cluster's blocks, by address.
class MemoryBarriers {
 public:
  explicit MemoryBarriers(int most) : most_(most) {}
  void clear() { barriers_.clear(); }
  bool empty() const { return barriers_.empty(); }
  /// Null: nobody has initialised a barrier there.
  MemoryBarrier* find(uint32_t address);
  /// Null: one of the 8 bytes belongs to a barrier already, or there is room for no more.
  MemoryBarrier* add(uint32_t address, int arrivals);
  /// The barrier that one of the bytes belongs to, -1 for none.
  int64_t overlapping(uint32_t address, int bytes) const;
  /// Makes those that `thread` has initialised known to the copy engine.
  void fence(int thread);
  /// A line for each barrier that somebody waits at: what is missing.
  std::string describe_waiting() const;

 private:
  int most_;
  std::map<uint32_t, MemoryBarrier> barriers_;
};

/// A named barrier (bar.sync, bar.arrive).
struct NamedBarrier {
  int threads = 0;  // of the round under way
  int arrived = 0;  // 0: no round is under way
  Place place;      // of its first arrival
  Clock clock;
  Waiters waiting;
};

}  // namespace tilewright::simulator
