#include "simulator/warpgroups.h"

#include <algorithm>

#include <fmt/format.h>

namespace tilewright::simulator {

// An SM has 65536 registers, handed out in eights; a thread has at most 255, which take 256.
Warpgroups::Warpgroups(int threads, int blocks)
    : registers_at_launch_(std::min(65536 / threads / 8 * 8, 256)),
      products_(threads / 32 * blocks),
      groups_(threads / 128 * blocks),
      registers_(threads / 32 * blocks),
      warps_per_block_(threads / 32),
      free_(blocks) {}

void Warpgroups::start_block() {
  for (WarpProducts& products : products_) products.clear();
  for (Group& group : groups_) group = {};
  std::fill(registers_.begin(), registers_.end(), registers_at_launch_);
  std::fill(free_.begin(), free_.end(), 0);
  waiting_for_registers_.clear();
}

bool Warpgroups::note_commit(int warp, const std::vector<Product>& products) {
  Group& group = groups_[warp / 4];
  const size_t at = group.committed[warp % 4]++ - group.complete;
  if (at == group.commits.size()) group.commits.push_back({products, 0});
  Commit& commit = group.commits[at];
  if (commit.products != products) {
    other_place_ = commit.products.empty() ? Place() : commit.products[0].place;
    return false;
  }
  if (++commit.warps == 4) {  // always the oldest: each warp commits in order
    group.commits.erase(group.commits.begin());
    ++group.complete;
  }
  return true;
}

bool Warpgroups::set_registers(int warp, int count) {
  const int more = count - registers_[warp];
  int& free = free_[warp / warps_per_block_];
  if (more > free) return false;
  free -= more;
  registers_[warp] = count;
  return true;
}

std::string Warpgroups::end_fault() const {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (!groups_[i].commits.empty()) {
      return fmt::format(
          "warps {} to {} are a warpgroup, but only {} of them have computed the products committed at line "
          "{}",
          i * 4, i * 4 + 3, groups_[i].commits[0].warps,
          groups_[i].commits[0].products.empty() ? 0 : groups_[i].commits[0].products[0].place.line());
    }
    const auto first = registers_.begin() + i * 4;
    if (!std::all_of(first, first + 4, [&](int count) { return count == *first; })) {
      return fmt::format(
          "warps {} to {} are a warpgroup, but not all of them have set their registers to the same", i * 4,
          i * 4 + 3);
    }
  }
  return "";
}

}  // namespace tilewright::simulator
