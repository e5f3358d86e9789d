#include "simulator/products.h"

#include <algorithm>
#include <cstring>

namespace tilewright::simulator {
namespace {

// Registers of a D at work: NaN that no arithmetic makes.
constexpr uint32_t poison = 0xffffffff;

// D of one warp: lane t holds, of rows t / 4 and 8 below, two neighbouring columns of every eight: register
// 4 i + 2 half + e is column 8 i + 2 (t % 4) + e of row t / 4 + 8 half.
using Tile = float[16][RowProduct::most_columns];

template <class Copy>
void for_each_pair(int n, Copy&& copy) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < n / 4; ++i) copy(lane, 2 * i, lane / 4 + i % 2 * 8, i / 2 * 8 + lane % 4 * 2);
  }
}

const uint16_t* granule(const std::byte* shared, uint32_t descriptor, int mn, int k, bool transposed) {
  return reinterpret_cast<const uint16_t*>(shared + granule_address(descriptor, mn, k, transposed));
}

void load_a(const Product& product, const unsigned* const registers[32], int warp_in_group,
            const std::byte* shared, RowProduct& work) {
  uint16_t elements[16][16];
  if (product.a_in_registers) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        std::memcpy(&elements[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8], &registers[lane][i], 4);
      }
    }
  } else if (product.transposed_a) {
    for (int k = 0; k < 16; ++k) {
      for (int m = 0; m < 16; ++m) {
        elements[m][k] = granule(shared, product.a, warp_in_group * 16 + m / 8 * 8, k, true)[m % 8];
      }
    }
  } else {
    for (int m = 0; m < 16; ++m) {
      for (int k = 0; k < 16; k += 8) {
        std::memcpy(&elements[m][k], granule(shared, product.a, warp_in_group * 16 + m, k, false), 16);
      }
    }
  }
  work.load_a(elements, product.type);
}

void load_b(const Product& product, const std::byte* shared, RowProduct& work) {
  for (int n = 0; n < product.n; n += 8) {
    uint16_t elements[16][8];  // [k][n] if transposed, else two of [n][k]
    for (int i = 0; i < 16; ++i) {
      const uint16_t* const from = product.transposed_b
                                       ? granule(shared, product.b, n, i, true)
                                       : granule(shared, product.b, n + i % 8, i / 8 * 8, false);
      std::memcpy(elements[i], from, 16);
    }
    work.load_b(elements, n, product.transposed_b, product.type);
  }
}

}  // namespace

bool WarpProducts::issue(int lane, const Product& product, ProductRegisters registers) {
  const size_t at = committed_ + issued_[lane]++;
  if (at == queue_.size()) {
    Entry& entry = queue_.emplace_back();
    entry.product = product;
    entry.first = std::none_of(queue_.begin(), queue_.end() - 1,
                               [&](const Entry& earlier) { return earlier.d[lane] == registers.d; });
    if (entry.first) entry.saved.resize(32 * product.n / 2);
  } else if (queue_[at].product != product) {
    other_place_ = queue_[at].product.place;
    return false;
  }
  Entry& entry = queue_[at];
  entry.d[lane] = registers.d;
  entry.a[lane] = registers.a;
  if (entry.first) {
    const size_t count = product.n / 2;
    if (product.accumulate) std::memcpy(&entry.saved[lane * count], registers.d, count * 4);
    std::memset(registers.d, poison & 0xff, count * 4);
  }
  return true;
}

bool WarpProducts::lanes_agree() const {
  return std::all_of(issued_, issued_ + 32,
                     [&](int issued) { return committed_ + issued == static_cast<int>(queue_.size()); });
}

const std::vector<Product>& WarpProducts::open() {
  open_.clear();
  for (size_t i = committed_; i < queue_.size(); ++i) open_.push_back(queue_[i].product);
  return open_;
}

void WarpProducts::commit(uint32_t number) {
  groups_.push_back({static_cast<int>(queue_.size()) - committed_, number});
  committed_ = static_cast<int>(queue_.size());
  std::fill(issued_, issued_ + 32, 0);
}

WarpProducts::Finished WarpProducts::finish(int groups_in_flight, int warp_in_group,
                                            const std::byte* shared) {
  thread_local RowProduct work;
  Finished result;
  fenced_ = 0;
  int count = 0;
  while (static_cast<int>(groups_.size()) > groups_in_flight) {
    count += groups_.front().products;
    if (groups_.front().number != 0) result.number = groups_.front().number;
    groups_.pop_front();
  }
  Tile& d = work.d;
  for (int i = 0; i < count; ++i) {
    Entry& entry = queue_[i];
    const Product& product = entry.product;
    const size_t registers = product.n / 2;
    if (entry.first) {
      for_each_pair(product.n, [&](int lane, int at, int row, int column) {
        std::memcpy(&d[row][column], &entry.saved[lane * registers + at], 8);
      });
    }
    if (!product.accumulate) std::memset(d, 0, sizeof d);
    load_a(product, entry.a, warp_in_group, shared, work);
    load_b(product, shared, work);
    work.multiply(product.n);
    // The next one with this D goes on with the sum in place if it comes next, else from its registers.
    const auto next = std::find_if(queue_.begin() + i + 1, queue_.end(),
                                   [&](const Entry& later) { return later.d[0] == entry.d[0]; });
    if (next == queue_.begin() + i + 1 && i + 1 < count) continue;
    if (next != queue_.end()) {
      next->first = true;
      next->saved.resize(32 * registers);
      for_each_pair(product.n, [&](int lane, int at, int row, int column) {
        std::memcpy(&next->saved[lane * registers + at], &d[row][column], 8);
      });
      continue;
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (size_t r = 0; r < registers; ++r) {
        uint32_t bits;
        std::memcpy(&bits, &entry.d[lane][r], 4);
        if (bits == poison) continue;
        result.lane = lane;
        result.place = product.place;
        return result;
      }
    }
    for_each_pair(product.n, [&](int lane, int at, int row, int column) {
      std::memcpy(&entry.d[lane][at], &d[row][column], 8);
    });
  }
  queue_.erase(queue_.begin(), queue_.begin() + count);
  committed_ -= count;
  return result;
}

void WarpProducts::clear() {
  *this = WarpProducts();
}

}  // namespace tilewright::simulator
