#include "simulator/clock.h"

#include <algorithm>

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
  summarise();
}

void WarpClock::acquire(int lane, const uint32_t* ticks) {
  bool news = false;
  for (int other = 0; other < 32; ++other) {
    if (ticks[other] <= known_[lane][other]) continue;
    known_[lane][other] = ticks[other];
    news = true;
  }
  if (news) summarise();
}

void WarpClock::summarise() {
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

}  // namespace tilewright::simulator
