// The asynchronous products of a warpgroup (wgmma), warp by warp: each of the four warps computes its 16 of
// the 64 rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "simulator/matrix.h"
#include "simulator/place.h"

namespace tilewright::simulator {

/// D (64 x n) = A (64 x 16) B (16 x n), or += with `accumulate`, as all lanes of a warp must ask for it.
/// Descriptors are the low words: bits 0-13 the address, bits 16-29 the leading offset, both in units of 16
/// bytes. In the layouts a row is 128 bytes, rows lie in groups of 8 of 1024 bytes, and bits 4-6 of an
/// address are XORed with its bits 7-9:
///   not transposed: row m (of A) or n (of B), 64 values of k a row
///   transposed: row k, 64 values of m or n a row; of n the next 64 are the leading offset away
struct Product {
  int n = 0;
  bool a_in_registers = false;
  uint32_t a = 0, b = 0;
  bool accumulate = false, transposed_a = false, transposed_b = false;
  ElementType type = ElementType::fp16;
  Place place;
  bool operator==(const Product&) const = default;
};

/// The registers that a lane brings: n / 2 of D, 4 of A or null.
struct ProductRegisters {
  float* d;
  const unsigned* a;
};

/// The shared bytes that warp `warp_in_group` reads, as offsets of granules of 16 bytes; may lie outside of
/// the block's.
template <class Visit>
void for_each_granule(const Product& product, int warp_in_group, Visit&& visit);

/// Products of one warp from their issue to the end of the wait for them. Until then D holds NaN.
class WarpProducts {
 public:
  /// A lane issues its next product. False: other lanes issued another one, see other_place().
  bool issue(int lane, const Product& product, ProductRegisters registers);
  Place other_place() const { return other_place_; }
  /// Whether all lanes have issued the same number of products since the last commit.
  bool lanes_agree() const;
  /// The products issued since the last commit.
  const std::vector<Product>& open();
  /// Closes the group; `number` is the caller's for it.
  void commit(uint32_t number);
  bool empty() const { return queue_.empty(); }

  struct Finished {
    uint32_t number = 0;  // of the newest finished group; 0: none
    int lane = -1;        // whose registers were written while a product was at work; -1: all is well
    Place place;          // of that product
  };
  /// Computes all groups but the newest `groups_in_flight`. Operands are read now.
  Finished finish(int groups_in_flight, int warp_in_group, const std::byte* shared);

  /// A fence of each lane; a wait takes it away: registers may have changed since.
  void fence(int lane) { fenced_ |= 1u << lane; }
  bool fenced(int lane) const { return fenced_ >> lane & 1; }

  void clear();

 private:
  struct Entry {
    Product product;
    float* d[32];
    const unsigned* a[32];
    bool first = false;        // of those in flight with its D
    std::vector<float> saved;  // D before it, [lane][n / 2]
  };
  struct Group {
    int products = 0;
    uint32_t number = 0;
  };

  std::deque<Entry> queue_;   // oldest first
  std::deque<Group> groups_;  // committed
  int committed_ = 0;         // entries of queue_ in groups
  int issued_[32] = {};       // since the last commit
  uint32_t fenced_ = 0;
  std::vector<Product> open_;
  Place other_place_;
};

// --- for_each_granule

inline uint32_t swizzled(uint32_t address) {
  return address ^ (address >> 7 & 7) << 4;
}

/// Address of the granule that holds element `k` of row `mn`, or if transposed column `mn` of row `k`.
inline uint32_t granule_address(uint32_t descriptor, int mn, int k, bool transposed) {
  const uint32_t start = (descriptor & 0x3fff) * 16, leading = (descriptor >> 16 & 0x3fff) * 16;
  return swizzled(transposed ? start + mn / 64 * leading + k / 8 * 1024 + k % 8 * 128 + mn % 64 / 8 * 16
                             : start + mn / 8 * 1024 + mn % 8 * 128 + k / 8 * 16);
}

template <class Visit>
void for_each_granule(const Product& product, int warp_in_group, Visit&& visit) {
  if (!product.a_in_registers && product.transposed_a) {
    for (int k = 0; k < 16; ++k) {
      for (int m = 0; m < 16; m += 8) visit(granule_address(product.a, warp_in_group * 16 + m, k, true));
    }
  } else if (!product.a_in_registers) {
    for (int m = warp_in_group * 16; m < warp_in_group * 16 + 16; ++m) {
      for (int k = 0; k < 16; k += 8) visit(granule_address(product.a, m, k, false));
    }
  }
  if (product.transposed_b) {
    for (int k = 0; k < 16; ++k) {
      for (int n = 0; n < product.n; n += 8) visit(granule_address(product.b, n, k, true));
    }
  } else {
    for (int n = 0; n < product.n; ++n) {
      for (int k = 0; k < 16; k += 8) visit(granule_address(product.b, n, k, false));
    }
  }
}

}  // namespace tilewright::simulator
