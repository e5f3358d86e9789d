// What orders the accesses of a block's threads to shared memory, and which accesses nothing orders.
//
// Two accesses to one word by two threads, at least one of them a write, must be ordered by a barrier. Only
// barriers order memory: a block barrier all threads, a warp barrier the lanes in its mask, others those who
// wait after those who arrived. Shuffles, ldmatrix and mma do not, though all lanes meet there. The words are
// those of 32 bits: lanes may fill one 16-byte row together.
//
// Barriers of all threads count generations: everything of an earlier generation is ordered. Within one
// generation lanes of one warp are ordered by their clocks (WarpClock), threads of two warps by what they
// released and acquired. The copy engine, the products of a warpgroup and bulk copies out of shared memory
// are agents of their own: a copy is ordered before those who waited for its barrier, the reads of a product
// or bulk copy before those who come after the wait for it. They touch whole granules of 16 bytes, and see a
// thread's store if they come after a fence (fence.proxy.async) that the thread executed after it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "simulator/clock.h"
#include "simulator/place.h"

namespace tilewright::simulator {

/// Two accesses that nothing orders, the read of a word that nobody wrote, or of one that was written through
/// another path to memory.
struct Conflict {
  enum class Kind { none, unwritten, race, proxy } kind = Kind::none;
  uint32_t address = 0;         // of the word
  bool other_is_write = false;  // else a read
  bool in_flight = false;       // the other is asynchronous, and nobody has waited for it
  std::string other_agent;      // "warp 2 lane 5"; one of them, if several
  Place other;
};

class RaceChecker {
 public:
  static constexpr int most_barriers = 64;  // of a block

  /// `threads` a block, of which a cluster has `blocks`; `shared_memory` of all of them. Without
  /// `check_races` only reads of unwritten words are found.
  RaceChecker(int shared_memory, int threads, int blocks, bool check_races);

  /// A new block begins: nothing is written.
  void start_block();

  // --- what orders
  /// All threads of a block, or of the cluster, have met.
  void barrier(int first, int threads);
  void warp_barrier(int warp, uint32_t mask);
  /// Whoever acquires the clock comes after all that the thread has done and comes after.
  void release(int thread, Clock& clock);
  void acquire(int thread, const Clock& clock);
  /// A moment of a thread.
  struct Moment {
    uint32_t generation = 0, tick = 0;
    int thread = 0;
  };
  Moment now(int thread) const;
  bool comes_after(int thread, const Moment& moment) const;

  // --- accesses. False: see conflict().
  /// `bytes` (a multiple of 4) at an aligned address.
  bool read(uint32_t address, int bytes, int thread, Place place);
  /// ldmatrix: a row of 16 bytes, given by `thread`, that all lanes of its warp read.
  bool read_by_warp(uint32_t address, int thread, Place place);
  /// With `in_flight` the bytes arrive by a thread's own asynchronous copy: nobody may touch them before
  /// `copy_landed`.
  bool write(uint32_t address, int bytes, int thread, Place place, bool in_flight = false);
  /// The thread has waited for its copy to `address`, 16 bytes.
  void copy_landed(uint32_t address, int thread);

  // --- the copy engine. Barriers count from 0 to most_barriers - 1, their phases from 1.
  /// `thread` starts a copy to whole granules. Returns the copy, 0 for a conflict.
  uint32_t start_tensor_copy(uint32_t address, int bytes, int thread, Place place);
  /// Its bytes count for this phase of the barrier, whose waiters will acquire `clock`.
  void tensor_copy_arrives(uint32_t copy, int barrier, uint32_t phase, Clock& clock);

  // --- products of a warpgroup
  /// A product of one warp begins; its number is for `finish_products`.
  uint32_t start_product(int warp, Place place);
  /// The newest product of the warp reads 16 bytes.
  bool read_by_product(uint32_t address, int warp);
  /// The lanes of the warp have waited for all products up to this one.
  void finish_products(int warp, uint32_t product);

  // --- bulk copies out of shared memory
  /// The thread's earlier stores become visible to products and bulk copies that come after this.
  void fence_async(int thread);
  /// `thread` starts a copy that reads whole granules; its number is for `finish_bulk_reads`. 0: a conflict.
  uint32_t start_bulk_read(uint32_t address, int bytes, int thread, Place place);
  /// The thread has waited for the reads of its copies up to this one.
  void finish_bulk_reads(int thread, uint32_t number);

  const Conflict& conflict() const { return conflict_; }

 private:
  struct Write {
    uint32_t generation = 0;
    uint32_t tick = 0;
    Place place;
    uint16_t agent = 0;
    bool in_flight = false;
  };
  /// The lanes of one warp that read a word and that not yet all lanes come after.
  struct Reads {
    uint32_t generation = 0;
    uint32_t tick : 31 = 0;         // of the last read
    uint32_t ticks_differ : 1 = 0;  // then lane_ticks_ holds each lane's
    uint32_t lanes = 0;
    Place place;
  };
  struct TensorCopy {
    uint32_t tick = 0;
    Place place;
    uint16_t agent = 0;
    bool in_flight = true;
  };
  /// What reads behind the threads' backs: the products of a warp, or its threads' bulk copies.
  struct Readers {
    uint32_t newest = 0, finished = 0, before_block = 0;  // never restart
    std::vector<Place> places;                            // of those of this block
  };

  int products_of(int warp) const { return threads_ + warp; }
  int bulk_reads_of(int warp) const { return threads_ + warps_ + warp; }
  int copies_of(int barrier) const { return threads_ + 2 * warps_ + barrier; }
  Readers& readers(int agent) { return readers_[agent - threads_]; }
  std::string describe_agent(int agent) const;
  bool knows(int thread, int agent, uint32_t tick) const;
  bool warp_knows(int warp, int agent, uint32_t tick) const;
  void need_rows();

  bool unwritten(uint32_t word);
  bool race(uint32_t word, const Write& other);
  bool race(uint32_t word, const TensorCopy& other);
  bool race(uint32_t word, const Reads& other, int warp, uint32_t lanes);
  bool comes_after_write(uint32_t word, int thread);
  void note_read(uint32_t word, int warp, uint32_t lanes, Place place);
  void note_ticks_by_lane(Reads& reads, uint32_t lanes, uint32_t tick);
  bool conflicts_with_reads(uint32_t word, int thread);
  bool conflicts_with_readers(uint32_t first, uint32_t end, int thread);
  uint32_t start_reader(int agent, Place place);
  bool read_behind(uint32_t granule, int agent, bool (RaceChecker::*knows)(int, int, uint32_t) const,
                   int who);
  void spread_copy_over_words(uint32_t granule);

  bool check_races_;
  int threads_, warps_, agents_;
  uint32_t generation_ = 1;        // never restarts: what earlier blocks left behind is old by itself
  uint32_t first_generation_ = 1;  // of this block
  std::vector<WarpClock> clocks_;
  std::vector<Clock> rows_;    // [thread]: of agents outside its warp; empty until somebody releases
  std::vector<Write> writes_;  // [word]
  std::vector<Reads> reads_;   // [word][warp]
  std::unordered_map<size_t, std::array<uint32_t, 32>> lane_ticks_;  // by the index into reads_

  std::vector<TensorCopy> copies_;  // [0]: none
  std::vector<uint32_t> copy_of_;   // [granule]: the copy that wrote it last; 0: a thread did, or nobody
  std::vector<uint8_t> touched_by_threads_;  // [granule]
  std::vector<Readers> readers_;             // [agent - threads_]: of the warps' products, then bulk copies
  std::vector<uint32_t> reads_behind_;       // [reader][granule]: the last one; empty until there is one
  std::vector<std::vector<Moment>> fences_;  // [thread]: its fence_async of this block, in order
  uint32_t known_copy_ = 0;                  // one that the newest reader comes after
  Conflict conflict_;
};

}  // namespace tilewright::simulator
