#include "simulator/barriers.h"

#include <algorithm>

#include <fmt/format.h>

namespace tilewright::simulator {

bool MemoryBarrier::advance() {
  if (pending != 0 || bytes != 0) return false;
  ++phases;
  pending = arrivals;
  over = arriving;
  return true;
}

MemoryBarrier* MemoryBarriers::find(uint32_t address) {
  const auto at = barriers_.find(address);
  return at == barriers_.end() ? nullptr : &at->second;
}

MemoryBarrier* MemoryBarriers::add(uint32_t address, int arrivals) {
  if (overlapping(address, 8) >= 0 || static_cast<int>(barriers_.size()) == most_) return nullptr;
  MemoryBarrier& barrier = barriers_[address];
  barrier.index = static_cast<int>(barriers_.size()) - 1;
  barrier.arrivals = barrier.pending = arrivals;
  return &barrier;
}

int64_t MemoryBarriers::overlapping(uint32_t address, int bytes) const {
  if (barriers_.empty() || address > barriers_.rbegin()->first + 7) return -1;
  const auto next = barriers_.lower_bound(address > 7 ? address - 7 : 0);
  return next != barriers_.end() && next->first < address + bytes ? static_cast<int64_t>(next->first) : -1;
}

void MemoryBarriers::fence(int thread) {
  for (auto& [address, barrier] : barriers_) barrier.fenced |= barrier.initialised.thread == thread;
}

std::string MemoryBarriers::describe_waiting() const {
  std::string text;
  for (const auto& [address, barrier] : barriers_) {
    const bool waited_for = std::any_of(barrier.waiting.begin(), barrier.waiting.end(),
                                        [](uint32_t lanes) { return lanes != 0; });
    if (!waited_for) continue;
    text += fmt::format(
        "\n  barrier at shared byte {}, initialised at line {}: phase {} lacks {} of {} arrivals and {} "
        "bytes",
        address, barrier.place.line(), barrier.phases, barrier.pending, barrier.arrivals, barrier.bytes);
  }
  return text;
}

}  // namespace tilewright::simulator
