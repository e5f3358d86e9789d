// Random numbers that depend on their seed alone (SplitMix64): equal seeds give equal schedules everywhere.
#pragma once

#include <cstdint>

namespace tilewright::simulator {

class Random {
 public:
  explicit Random(uint64_t seed = 0) : state_(seed) {}
  uint64_t next() {
    uint64_t bits = state_ += 0x9e3779b97f4a7c15;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
    return bits ^ bits >> 31;
  }
  /// 0 … limit - 1
  int below(int limit) { return static_cast<int>(next() % static_cast<uint64_t>(limit)); }
  bool coin() { return next() >> 63; }

 private:
  uint64_t state_;
};

}  // namespace tilewright::simulator
