// What orders the accesses of a block's threads to shared memory, and which accesses nothing orders.
//
// Two accesses to one word by two threads, at least one of them a write, must be ordered by a barrier. Only
// barriers order memory: a block barrier all threads, a warp barrier the lanes in its mask. Shuffles,
// ldmatrix and mma do not, though all lanes meet there. The words are those of 32 bits: lanes may fill one
// 16-byte row together.
//
// Block barriers count generations: everything of an earlier generation is ordered. Within one generation
// threads of two warps are never ordered, and lanes of one warp by their clocks (WarpClock).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "simulator/place.h"

namespace tilewright::simulator {

/// Vector clocks of the lanes of one warp. A warp barrier ends a tick; an access is stamped with the tick it
/// falls in.
class WarpClock {
 public:
  WarpClock() { restart(); }
  void restart();
  /// The lanes of `mask` have met.
  void barrier(uint32_t mask);

  uint32_t tick() const { return tick_; }
  /// Whether `lane` comes after what `other` did in `tick`.
  bool knows(int lane, int other, uint32_t tick) const { return known_[lane][other] >= tick; }
  /// The same for every `other`.
  bool knows_all(int lane, uint32_t tick) const { return known_of_all_[lane] >= tick; }
  /// Whether all lanes come after what `other` did in `tick`.
  bool known_to_all(int other, uint32_t tick) const { return known_to_all_[other] >= tick; }
  /// Whether all lanes come after everything of `tick`.
  bool past(uint32_t tick) const { return past_ >= tick; }

 private:
  uint32_t tick_;
  uint32_t past_;
  std::array<std::array<uint32_t, 32>, 32>
      known_;                              // [lane][other]: the last tick of `other` that `lane` comes after
  std::array<uint32_t, 32> known_of_all_;  // minimum over `other`
  std::array<uint32_t, 32> known_to_all_;  // minimum over `lane`
};

/// Two accesses that nothing orders, or the read of a word that nobody wrote.
struct Conflict {
  enum class Kind { none, unwritten, race } kind = Kind::none;
  uint32_t address = 0;         // of the word
  bool other_is_write = false;  // else a read
  bool in_flight = false;       // the other is an asynchronous copy that its thread has not waited for
  int other_thread = 0;         // one of them, if several
  Place other;
};

class RaceChecker {
 public:
  /// Without `check_races` only reads of unwritten words are found.
  RaceChecker(int shared_memory, int threads, bool check_races);

  /// A new block begins: nothing is written.
  void start_block();
  void block_barrier() { ++generation_; }
  void warp_barrier(int warp, uint32_t mask) { clocks_[warp].barrier(mask); }

  /// Note an access of `bytes` (a multiple of 4) at an aligned address. False: see conflict().
  bool read(uint32_t address, int bytes, int thread, Place place);
  /// ldmatrix: a row of 16 bytes, given by `thread`, that all lanes of its warp read.
  bool read_by_warp(uint32_t address, int thread, Place place);
  /// With `in_flight` the bytes arrive by an asynchronous copy: nobody may touch them before `copy_landed`.
  bool write(uint32_t address, int bytes, int thread, Place place, bool in_flight = false);
  /// The thread has waited for its copy to `address`, 16 bytes.
  void copy_landed(uint32_t address, int thread);

  const Conflict& conflict() const { return conflict_; }

 private:
  struct Write {
    uint32_t generation = 0;
    uint32_t tick = 0;
    Place place;
    uint16_t thread = 0;
    bool in_flight = false;
  };
  /// The lanes of one warp that read a word and that not yet all lanes come after.
  struct Reads {
    uint32_t generation = 0;
    uint32_t tick = 0;
    uint32_t lanes = 0;
    Place place;
  };

  bool unwritten(uint32_t word);
  bool race(uint32_t word, const Write& other);
  bool race(uint32_t word, const Reads& other, int warp, uint32_t lanes);
  void note_read(uint32_t word, int warp, uint32_t lanes, Place place);
  bool conflicts_with_reads(uint32_t word, int thread);

  bool check_races_;
  int warps_;
  uint32_t generation_ = 1;        // never restarts: what earlier blocks left behind is old by itself
  uint32_t first_generation_ = 1;  // of this block
  std::vector<WarpClock> clocks_;
  std::vector<Write> writes_;  // [word]
  std::vector<Reads> reads_;   // [word][warp]
  Conflict conflict_;
};

}  // namespace tilewright::simulator
