// Clocks: what comes after what.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tilewright::simulator {

/// For each agent (a thread, the products of a warp, the copies of a barrier) the last tick that its owner
/// comes after.
using Clock = std::vector<uint32_t>;

/// Vector clocks of the lanes of one warp. A warp barrier ends a tick, and so does a lane's arrival at a
/// barrier of other warps; an access is stamped with the tick it falls in.
class WarpClock {
 public:
  WarpClock() { restart(); }
  void restart();
  /// The lanes of `mask` have met.
  void barrier(uint32_t mask);
  /// What a lane does from now on is later than what it did.
  void end_tick() { ++tick_; }
  /// `lane` comes after these ticks of its 32 neighbours.
  void acquire(int lane, const uint32_t* ticks);

  uint32_t tick() const { return tick_; }
  /// The last tick of `other` that `lane` comes after.
  uint32_t known(int lane, int other) const { return known_[lane][other]; }
  /// Whether `lane` comes after what `other` did in `tick`.
  bool knows(int lane, int other, uint32_t tick) const { return known_[lane][other] >= tick; }
  /// The same for every `other`.
  bool knows_all(int lane, uint32_t tick) const { return known_of_all_[lane] >= tick; }
  /// Whether all lanes come after what `other` did in `tick`.
  bool known_to_all(int other, uint32_t tick) const { return known_to_all_[other] >= tick; }
  /// Whether all lanes come after everything of `tick`.
  bool past(uint32_t tick) const { return past_ >= tick; }

 private:
  void summarise();

  uint32_t tick_;
  uint32_t past_;
  std::array<std::array<uint32_t, 32>, 32> known_;  // [lane][other]
  std::array<uint32_t, 32> known_of_all_;           // minimum over `other`
  std::array<uint32_t, 32> known_to_all_;           // minimum over `lane`
};

}  // namespace tilewright::simulator
