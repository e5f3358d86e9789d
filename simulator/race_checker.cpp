#include "simulator/race_checker.h"

#include <algorithm>
#include <bit>

namespace tilewright::simulator {
namespace {

void join(Clock& clock, const Clock& other) {
  uint32_t* const to = clock.data();
  const uint32_t* const from = other.data();
  for (size_t i = 0; i < clock.size(); ++i) to[i] = std::max(to[i], from[i]);
}

}  // namespace

RaceChecker::RaceChecker(int shared_memory, int threads, int blocks, bool check_races)
    : check_races_(check_races),
      threads_(threads * blocks),
      warps_(threads_ / 32),
      agents_(threads_ + 2 * warps_ + most_barriers * blocks),
      clocks_(warps_),
      writes_((shared_memory + 3) / 4),
      reads_(check_races ? writes_.size() * warps_ : 0),
      copies_(1),
      copy_of_((shared_memory + 15) / 16),
      touched_by_threads_(copy_of_.size()),
      readers_(2 * warps_),
      fences_(threads_) {}

void RaceChecker::start_block() {
  first_generation_ = ++generation_;
  for (WarpClock& clock : clocks_) clock.restart();
  lane_ticks_.clear();
  if (copies_.size() > 1) std::fill(copy_of_.begin(), copy_of_.end(), 0);
  copies_.resize(1);
  std::fill(touched_by_threads_.begin(), touched_by_threads_.end(), 0);
  for (Readers& reader : readers_) {
    reader.before_block = reader.finished = reader.newest;
    reader.places.clear();
  }
  for (std::vector<Moment>& fences : fences_) fences.clear();
  for (Clock& row : rows_) {
    std::fill(row.begin(), row.end(), 0);
    for (size_t reader = 0; reader < readers_.size(); ++reader)
      row[threads_ + reader] = readers_[reader].newest;
  }
}

// --- what orders

void RaceChecker::need_rows() {
  if (!rows_.empty()) return;
  Clock row(agents_);
  for (size_t reader = 0; reader < readers_.size(); ++reader)
    row[threads_ + reader] = readers_[reader].before_block;
  rows_.assign(threads_, row);
}

void RaceChecker::barrier(int first, int threads) {
  if (threads < threads_) {
    Clock met;
    for (int thread = first; thread < first + threads; ++thread) release(thread, met);
    for (int thread = first; thread < first + threads; ++thread) acquire(thread, met);
    return;
  }
  ++generation_;
  if (rows_.empty()) return;
  Clock joined(agents_);
  for (const Clock& row : rows_) join(joined, row);
  for (Clock& row : rows_) row = joined;
}

void RaceChecker::warp_barrier(int warp, uint32_t mask) {
  clocks_[warp].barrier(mask);
  if (rows_.empty()) return;
  Clock joined(agents_);
  for (int lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1) join(joined, rows_[warp * 32 + lane]);
  }
  for (int lane = 0; lane < 32; ++lane) {
    if (mask >> lane & 1) rows_[warp * 32 + lane] = joined;
  }
}

void RaceChecker::release(int thread, Clock& clock) {
  if (!check_races_) return;
  need_rows();
  clock.resize(agents_);
  join(clock, rows_[thread]);
  WarpClock& warp = clocks_[thread / 32];
  uint32_t* const neighbours = &clock[thread & ~31];
  for (int lane = 0; lane < 32; ++lane) {
    const uint32_t tick = lane == thread % 32 ? warp.tick() : warp.known(thread % 32, lane);
    neighbours[lane] = std::max(neighbours[lane], tick);
  }
  warp.end_tick();
}

void RaceChecker::acquire(int thread, const Clock& clock) {
  if (!check_races_ || clock.empty()) return;
  need_rows();
  join(rows_[thread], clock);
  clocks_[thread / 32].acquire(thread % 32, &clock[thread & ~31]);
}

RaceChecker::Moment RaceChecker::now(int thread) const {
  return {generation_, clocks_[thread / 32].tick(), thread};
}

bool RaceChecker::comes_after(int thread, const Moment& moment) const {
  if (!check_races_ || moment.generation != generation_ || moment.thread == thread) return true;
  return knows(thread, moment.thread, moment.tick);
}

/// Whether the thread comes after what another agent did in a tick of this generation.
bool RaceChecker::knows(int thread, int agent, uint32_t tick) const {
  if (agent / 32 == thread / 32) return clocks_[thread / 32].knows(thread % 32, agent % 32, tick);
  return !rows_.empty() && rows_[thread][agent] >= tick;
}

bool RaceChecker::warp_knows(int warp, int agent, uint32_t tick) const {
  if (agent / 32 == warp) return clocks_[warp].known_to_all(agent % 32, tick);
  if (rows_.empty()) return false;
  const auto first = rows_.begin() + warp * 32;
  return std::all_of(first, first + 32, [&](const Clock& row) { return row[agent] >= tick; });
}

// --- conflicts

std::string RaceChecker::describe_agent(int agent) const {
  if (agent < threads_) return describe_thread(agent);
  if (agent < bulk_reads_of(0)) return "a product of warp " + std::to_string(agent - threads_);
  if (agent < copies_of(0)) return "a bulk copy of warp " + std::to_string(agent - bulk_reads_of(0));
  return "the copy engine";
}

bool RaceChecker::unwritten(uint32_t word) {
  conflict_ = {Conflict::Kind::unwritten, word * 4};
  return false;
}

bool RaceChecker::race(uint32_t word, const Write& other) {
  conflict_ = {Conflict::Kind::race,        word * 4,   true, other.in_flight,
               describe_agent(other.agent), other.place};
  return false;
}

bool RaceChecker::race(uint32_t word, const TensorCopy& other) {
  conflict_ = {Conflict::Kind::race,        word * 4,   true, other.in_flight,
               describe_agent(other.agent), other.place};
  return false;
}

bool RaceChecker::race(uint32_t word, const Reads& other, int warp, uint32_t lanes) {
  conflict_ = {
      Conflict::Kind::race, word * 4, false, false, describe_agent(warp * 32 + std::countr_zero(lanes)),
      other.place};
  return false;
}

// --- accesses of threads

/// Whether the word is written and the thread comes after that.
bool RaceChecker::comes_after_write(uint32_t word, int thread) {
  if (const uint32_t id = copy_of_[word / 4]) {
    const TensorCopy& copy = copies_[id];
    if (check_races_ && (copy.in_flight || !knows(thread, copy.agent, copy.tick))) return race(word, copy);
    return true;
  }
  const Write& last = writes_[word];
  if (last.generation < first_generation_) return unwritten(word);
  if (!check_races_) return true;
  if (last.in_flight) return race(word, last);
  if (last.generation == generation_ && last.agent != thread && !knows(thread, last.agent, last.tick)) {
    return race(word, last);
  }
  return true;
}

void RaceChecker::note_read(uint32_t word, int warp, uint32_t lanes, Place place) {
  touched_by_threads_[word / 4] = 1;
  if (!check_races_) return;
  Reads& reads = reads_[word * warps_ + warp];
  const uint32_t tick = clocks_[warp].tick();
  const bool keep = reads.generation == generation_ && !clocks_[warp].past(reads.tick);
  const uint32_t earlier = keep ? reads.lanes & ~lanes : 0;
  if (earlier != 0 && (reads.tick != tick || reads.ticks_differ)) {
    note_ticks_by_lane(reads, lanes, tick);
  } else {
    reads.ticks_differ = 0;
  }
  reads.generation = generation_;
  reads.tick = tick;
  reads.lanes = earlier | lanes;
  reads.place = place;
}

// Lanes that arrive somewhere between their reads end ticks in between.
void RaceChecker::note_ticks_by_lane(Reads& reads, uint32_t lanes, uint32_t tick) {
  auto& ticks = lane_ticks_[&reads - reads_.data()];
  for (int lane = 0; lane < 32; ++lane) {
    if (lanes >> lane & 1) {
      ticks[lane] = tick;
    } else if (!reads.ticks_differ) {
      ticks[lane] = reads.tick;
    }
  }
  reads.ticks_differ = 1;
}

bool RaceChecker::read(uint32_t address, int bytes, int thread, Place place) {
  for (uint32_t word = address / 4; word < (address + bytes) / 4; ++word) {
    if (!comes_after_write(word, thread)) return false;
    note_read(word, thread / 32, 1u << thread % 32, place);
  }
  return true;
}

bool RaceChecker::read_by_warp(uint32_t address, int thread, Place place) {
  const int warp = thread / 32;
  for (uint32_t word = address / 4; word < address / 4 + 4; ++word) {
    if (const uint32_t id = copy_of_[word / 4]) {
      const TensorCopy& copy = copies_[id];
      if (check_races_ && (copy.in_flight || !warp_knows(warp, copy.agent, copy.tick))) {
        return race(word, copy);
      }
    } else {
      const Write& last = writes_[word];
      if (last.generation < first_generation_) return unwritten(word);
      if (check_races_) {
        if (last.in_flight) return race(word, last);
        if (last.generation == generation_ && !warp_knows(warp, last.agent, last.tick)) {
          return race(word, last);
        }
      }
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
    if (other == warp && clocks_[warp].knows_all(lane, reads.tick)) continue;
    for (int reader = 0; reader < 32; ++reader) {
      if (!(unordered >> reader & 1)) continue;
      const uint32_t tick = reads.ticks_differ ? lane_ticks_[&reads - reads_.data()][reader] : reads.tick;
      if (other * 32 + reader == thread || knows(thread, other * 32 + reader, tick)) {
        unordered &= ~(1u << reader);
      }
    }
    if (unordered == 0) continue;
    race(word, reads, other, unordered);
    return true;
  }
  return false;
}

// A thread writes to part of a granule: the rest stays the copy's, word by word.
void RaceChecker::spread_copy_over_words(uint32_t granule) {
  const TensorCopy& copy = copies_[copy_of_[granule]];
  for (uint32_t word = granule * 4; word < std::min<uint32_t>(granule * 4 + 4, writes_.size()); ++word) {
    writes_[word] = {generation_, copy.tick, copy.place, copy.agent, copy.in_flight};
  }
  copy_of_[granule] = 0;
}

bool RaceChecker::write(uint32_t address, int bytes, int thread, Place place, bool in_flight) {
  for (uint32_t word = address / 4; word < (address + bytes) / 4; ++word) {
    Write& last = writes_[word];
    const bool written = copy_of_[word / 4] != 0 || last.generation >= first_generation_;
    if (check_races_ && written) {
      if (!comes_after_write(word, thread) || conflicts_with_reads(word, thread) ||
          conflicts_with_readers(word / 4, word / 4 + 1, thread)) {
        return false;
      }
    }
    if (copy_of_[word / 4]) spread_copy_over_words(word / 4);
    touched_by_threads_[word / 4] = 1;
    last = {generation_, clocks_[thread / 32].tick(), place, static_cast<uint16_t>(thread), in_flight};
  }
  return true;
}

void RaceChecker::copy_landed(uint32_t address, int thread) {
  const uint32_t tick = clocks_[thread / 32].tick();
  for (uint32_t word = address / 4; word < address / 4 + 4; ++word) {
    Write& copy = writes_[word];
    if (copy.agent != thread)
      continue;  // overwritten by another thread, which only an unchecked kernel can do
    copy.generation = generation_;
    copy.tick = tick;
    copy.in_flight = false;
  }
}

// --- the copy engine

uint32_t RaceChecker::start_tensor_copy(uint32_t address, int bytes, int thread, Place place) {
  const uint32_t first = address / 16, end = (address + bytes) / 16;
  if (check_races_) {
    uint32_t known = 0;  // a copy that the thread comes after
    for (uint32_t granule = first; granule < end; ++granule) {
      const uint32_t id = copy_of_[granule];
      if (id != 0 && id != known) {
        if (!comes_after_write(granule * 4, thread)) return 0;
        known = id;
      }
      if (!touched_by_threads_[granule]) continue;
      for (uint32_t word = granule * 4; word < granule * 4 + 4; ++word) {
        const bool written = id == 0 && writes_[word].generation >= first_generation_;
        if (written && !comes_after_write(word, thread)) return 0;
        if (conflicts_with_reads(word, thread)) return 0;
      }
    }
    if (conflicts_with_readers(first, end, thread)) return 0;
  }
  const uint32_t id = static_cast<uint32_t>(copies_.size());
  copies_.push_back({0, place, static_cast<uint16_t>(copies_of(0)), true});
  std::fill(copy_of_.begin() + first, copy_of_.begin() + end, id);
  return id;
}

void RaceChecker::tensor_copy_arrives(uint32_t copy, int barrier, uint32_t phase, Clock& clock) {
  const int agent = copies_of(barrier);
  copies_[copy] = {phase, copies_[copy].place, static_cast<uint16_t>(agent), false};
  if (!check_races_) return;
  clock.resize(agents_);
  clock[agent] = std::max(clock[agent], phase);
}

// --- what reads behind the threads' backs

void RaceChecker::fence_async(int thread) {
  fences_[thread].push_back(now(thread));
  clocks_[thread / 32].end_tick();
}

uint32_t RaceChecker::start_reader(int agent, Place place) {
  need_rows();
  if (check_races_ && reads_behind_.empty()) reads_behind_.resize(readers_.size() * copy_of_.size());
  known_copy_ = 0;
  readers(agent).places.push_back(place);
  return ++readers(agent).newest;
}

/// `who`, a thread or a warp, has started the reader; `knows` says what it comes after.
bool RaceChecker::read_behind(uint32_t granule, int agent,
                              bool (RaceChecker::*knows)(int, int, uint32_t) const, int who) {
  const uint32_t id = copy_of_[granule];
  if (id != 0 && check_races_ && id != known_copy_) {
    const TensorCopy& copy = copies_[id];
    if (copy.in_flight || !(this->*knows)(who, copy.agent, copy.tick)) return race(granule * 4, copy);
    known_copy_ = id;
  }
  for (uint32_t word = granule * 4; id == 0 && word < granule * 4 + 4; ++word) {
    const Write& last = writes_[word];
    if (last.generation < first_generation_) return unwritten(word);
    if (!check_races_) continue;
    const auto comes_after = [&](uint32_t generation, uint32_t tick) {
      return generation < generation_ || (this->*knows)(who, last.agent, tick);
    };
    if (last.in_flight || !comes_after(last.generation, last.tick)) return race(word, last);
    if (last.agent >= threads_) continue;  // the rest of a copy that a thread has written into
    const auto& fences = fences_[last.agent];
    const auto fence =
        std::lower_bound(fences.begin(), fences.end(), last, [](const Moment& a, const Write& b) {
          return a.generation < b.generation || (a.generation == b.generation && a.tick < b.tick);
        });
    if (fence != fences.end() && comes_after(fence->generation, fence->tick)) continue;
    conflict_ = {Conflict::Kind::proxy, word * 4, true, false, describe_agent(last.agent), last.place};
    return false;
  }
  if (check_races_) {
    reads_behind_[(agent - threads_) * copy_of_.size() + granule] = readers(agent).newest;
  }
  return true;
}

uint32_t RaceChecker::start_product(int warp, Place place) {
  return start_reader(products_of(warp), place);
}

bool RaceChecker::read_by_product(uint32_t address, int warp) {
  return read_behind(address / 16, products_of(warp), &RaceChecker::warp_knows, warp);
}

void RaceChecker::finish_products(int warp, uint32_t product) {
  const int agent = products_of(warp);
  readers(agent).finished = product;
  for (int lane = 0; lane < 32; ++lane) rows_[warp * 32 + lane][agent] = product;
}

uint32_t RaceChecker::start_bulk_read(uint32_t address, int bytes, int thread, Place place) {
  const int agent = bulk_reads_of(thread / 32);
  const uint32_t number = start_reader(agent, place);
  for (uint32_t granule = address / 16; granule < (address + bytes) / 16; ++granule) {
    if (!read_behind(granule, agent, &RaceChecker::knows, thread)) return 0;
  }
  return number;
}

void RaceChecker::finish_bulk_reads(int thread, uint32_t number) {
  const int agent = bulk_reads_of(thread / 32);
  readers(agent).finished = std::max(readers(agent).finished, number);
  rows_[thread][agent] = std::max(rows_[thread][agent], number);
}

bool RaceChecker::conflicts_with_readers(uint32_t first, uint32_t end, int thread) {
  if (reads_behind_.empty()) return false;
  for (size_t reader = 0; reader < readers_.size(); ++reader) {
    const int agent = threads_ + static_cast<int>(reader);
    if (readers_[reader].newest == readers_[reader].before_block) continue;
    const uint32_t known = rows_[thread][agent];
    const auto reads = reads_behind_.begin() + reader * copy_of_.size();
    uint32_t last = 0;
    for (uint32_t granule = first; granule < end; ++granule) last = std::max(last, reads[granule]);
    if (last <= known) continue;
    const uint32_t granule = static_cast<uint32_t>(std::find(reads + first, reads + end, last) - reads);
    const Readers& readers = readers_[reader];
    conflict_ = {
        Conflict::Kind::race,    granule * 16,          false,
        last > readers.finished, describe_agent(agent), readers.places[last - readers.before_block - 1]};
    return true;
  }
  return false;
}

}  // namespace tilewright::simulator
