// What four warps do together: their products, and the registers that they give and take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/barriers.h"
#include "simulator/products.h"

namespace tilewright::simulator {

class Warpgroups {
 public:
  /// Of a cluster of blocks, warps counted through all of them. A group has four warps; what is left over can
  /// do nothing of the sort.
  Warpgroups(int threads, int blocks);
  void start_block();
  bool complete(int warp) const { return warp / 4 < static_cast<int>(groups_.size()); }

  // --- products
  WarpProducts& products(int warp) { return products_[warp]; }
  /// The warp commits a group of products, which the other three warps must have committed too, or will.
  /// False: another warp's group is different, see other_place().
  bool note_commit(int warp, const std::vector<Product>& products);
  Place other_place() const { return other_place_; }

  // --- registers, of a thread; all warps start with the same number, which takes all of their block's
  int registers(int warp) const { return registers_[warp]; }
  /// False: so many are not free.
  bool set_registers(int warp, int count);
  Waiters& waiting_for_registers() { return waiting_for_registers_; }

  /// What is wrong at the end of a block: the warps of a group have not done the same. Empty: nothing.
  std::string end_fault() const;

 private:
  struct Commit {
    std::vector<Product> products;
    int warps = 0;  // that have committed it
  };
  struct Group {
    std::vector<Commit> commits;  // that not all four warps have committed, oldest first
    uint64_t complete = 0;        // commits of all four warps before those
    uint64_t committed[4] = {};
  };

  int registers_at_launch_;
  std::vector<WarpProducts> products_;
  std::vector<Group> groups_;
  std::vector<int> registers_;
  int warps_per_block_;
  std::vector<int> free_;  // [block], each for the 32 lanes of a warp
  Waiters waiting_for_registers_;
  Place other_place_;
};

}  // namespace tilewright::simulator
