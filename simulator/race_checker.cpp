#include "simulator/race_checker.h"

#include <algorithm>
#include <bit>

namespace tilewright::simulator {

void WarpClock::restart() {
  tick_ = 1;
  past_ = 0;
  for (auto& row : known_) row.fill(0);
  known_of_all_.fill(0);
  known_to_all_.fill(0);
}

void WarpClock::barrier(uint32_t mask) {
  std::array<uint32_t, 32> joined{};
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    for (int other = 0; other < 32; ++other) joined[other] = std::max(joined[other], known_[lane][other]);
  }
  for (int lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1) joined[lane] = tick_;
  }
  for (int lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1) known_[lane] = joined;
  }
  ++tick_;
  for (int lane = 0; lane < 32; ++lane) {
    known_of_all_[lane] = *std::min_element(known_[lane].begin(), known_[lane].end());
  }
  known_to_all_ = known_[0];
  for (int lane = 1; lane < 32; ++lane) {
    for (int other = 0; other < 32; ++other) {
      known_to_all_[other] = std::min(known_to_all_[other], known_[lane][other]);
    }
  }
  past_ = *std::min_element(known_to_all_.begin(), known_to_all_.end());
}

RaceChecker::RaceChecker(int shared_memory, int threads, bool check_races)
    : check_races_(check_races),
      warps_(threads / 32),
      clocks_(warps_),
      writes_((shared_memory + 3) / 4),
      reads_(check_races ? writes_.size() * warps_ : 0) {}

void RaceChecker::start_block() {
  first_generation_ = ++generation_;
  for (WarpClock& clock : clocks_) clock.restart();
}

bool RaceChecker::unwritten(uint32_t word) {
  conflict_ = {Conflict::Kind::unwritten, word * 4};
  return false;
}

bool RaceChecker::race(uint32_t word, const Write& other) {
  conflict_ = {Conflict::Kind::race, word * 4, true, other.in_flight, other.thread, other.place};
  return false;
}

bool RaceChecker::race(uint32_t word, const Reads& other, int warp, uint32_t lanes) {
  conflict_ = {Conflict::Kind::race, word * 4, false, false, warp * 32 + std::countr_zero(lanes),
               other.place};
  return false;
}

void RaceChecker::note_read(uint32_t word, int warp, uint32_t lanes, Place place) {
  Reads& reads = reads_[word * warps_ + warp];
  // Earlier readers count as readers of this tick, unless all lanes come after them. That is exact when
  // barriers have full masks.
  const bool keep = reads.generation == generation_ && !clocks_[warp].past(reads.tick);
  reads = {generation_, clocks_[warp].tick(), keep ? reads.lanes | lanes : lanes, place};
}

bool RaceChecker::read(uint32_t address, int bytes, int thread, Place place) {
  const int warp = thread / 32, lane = thread % 32;
  for (uint32_t word = address / 4; word < (address + bytes) / 4; ++word) {
    const Write& last = writes_[word];
    if (last.generation < first_generation_) return unwritten(word);
    if (!check_races_) continue;
    if (last.in_flight) return race(word, last);
    if (last.generation == generation_ && last.thread != thread &&
        (last.thread / 32 != warp || !clocks_[warp].knows(lane, last.thread % 32, last.tick))) {
      return race(word, last);
    }
    note_read(word, warp, 1u << lane, place);
  }
  return true;
}

bool RaceChecker::read_by_warp(uint32_t address, int thread, Place place) {
  const int warp = thread / 32;
  for (uint32_t word = address / 4; word < address / 4 + 4; ++word) {
    const Write& last = writes_[word];
    if (last.generation < first_generation_) return unwritten(word);
    if (!check_races_) continue;
    if (last.in_flight) return race(word, last);
    if (last.generation == generation_ &&
        (last.thread / 32 != warp || !clocks_[warp].known_to_all(last.thread % 32, last.tick))) {
      return race(word, last);
    }
    note_read(word, warp, ~0u, place);
  }
  return true;
}

bool RaceChecker::conflicts_with_reads(uint32_t word, int thread) {
  const int warp = thread / 32, lane = thread % 32;
  for (int other = 0; other < warps_; ++other) {
    const Reads& reads = reads_[word * warps_ + other];
    if (reads.generation != generation_) continue;
    uint32_t unordered = reads.lanes;
    if (other == warp) {
      if (clocks_[warp].knows_all(lane, reads.tick)) continue;
      for (int reader = 0; reader < 32; ++reader) {
        if (reader == lane || clocks_[warp].knows(lane, reader, reads.tick)) unordered &= ~(1u << reader);
      }
    }
    if (unordered == 0) continue;
    race(word, reads, other, unordered);
    return true;
  }
  return false;
}

bool RaceChecker::write(uint32_t address, int bytes, int thread, Place place, bool in_flight) {
  const int warp = thread / 32, lane = thread % 32;
  for (uint32_t word = address / 4; word < (address + bytes) / 4; ++word) {
    Write& last = writes_[word];
    if (check_races_ && last.generation >= first_generation_) {
      if (last.in_flight) return race(word, last);
      if (last.generation == generation_ && last.thread != thread &&
          (last.thread / 32 != warp || !clocks_[warp].knows(lane, last.thread % 32, last.tick))) {
        return race(word, last);
      }
      if (conflicts_with_reads(word, thread)) return false;
    }
    last = {generation_, clocks_[warp].tick(), place, static_cast<uint16_t>(thread), in_flight};
  }
  return true;
}

void RaceChecker::copy_landed(uint32_t address, int thread) {
  const uint32_t tick = clocks_[thread / 32].tick();
  for (uint32_t word = address / 4; word < address / 4 + 4; ++word) {
    Write& copy = writes_[word];
    if (copy.thread != thread)
      continue;  // overwritten by another thread, which only an unchecked kernel can do
    copy.generation = generation_;
    copy.tick = tick;
    copy.in_flight = false;
  }
}

}  // namespace tilewright::simulator
