// A warpgroup's products: layouts of operands and accumulators against a plain matrix product, asynchronous
// completion.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "simulator/matrix.h"
#include "simulator/tensor_map.h"
#include "tests/simulator_support.h"

namespace tilewright::simulator {
namespace {

constexpr unsigned barrier = 0, a_tile = 1024, b_tile = a_tile + 64 * 128,
                   shared_bytes = b_tile + 4 * 64 * 128;
constexpr int depth = 64;  // k, four steps

using Matrix = std::vector<std::vector<double>>;

uint16_t element(double value, ElementType type) {
  const float single = static_cast<float>(value);
  return type == ElementType::fp16 ? fp16_from_float(single) : bf16_from_float(single);
}

/// A matrix of eighths, exact in every type, its rows in global memory and a map of it.
class Operand {
 public:
  Operand(int rows, int columns, int box_rows, ElementType type, int seed) : rows_(rows), columns_(columns) {
    std::mt19937 generator(seed);
    values.assign(rows, std::vector<double>(columns));
    data_.assign(rows * columns + 8, 0);
    base_ = data_.data() + (16 - reinterpret_cast<uintptr_t>(data_.data()) % 16) % 16 / 2;
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        values[row][column] = (static_cast<int>(generator() % 33) - 16) / 8.0;
        base_[row * columns + column] = element(values[row][column], type);
      }
    }
    SimulatedTensorMap tensor{.base = base_, .element_bytes = 2};
    const int64_t extents[4] = {columns, rows, 1, 1};
    std::copy(extents, extents + 4, tensor.extents);
    for (int64_t& stride : tensor.strides) stride = columns * 2;
    const int box[4] = {64, box_rows, 1, 1};
    std::copy(box, box + 4, tensor.box);
    encode(tensor, map);
  }
  Buffer buffer() { return {base_, static_cast<size_t>(rows_) * columns_ * 2, "operand"}; }

  Matrix values;
  alignas(64) unsigned char map[128];

 private:
  int rows_, columns_;
  std::vector<uint16_t> data_;
  uint16_t* base_;
};

struct Setting {
  int n = 72;
  bool transposed = false;  // B as [k][n], else [n][k]
  bool a_in_registers = false;
  ElementType type = ElementType::bf16;
  bool a_transposed = false;  // A as [k][m], else [m][k]
};

/// Operands of one setting, and kernels of one warpgroup that begin with both in shared memory.
class Products {
 public:
  explicit Products(const Setting& setting)
      : setting_(setting),
        a_(64, depth, 64, setting.type, 1),  // m and k are as many
        b_(setting.transposed ? depth : setting.n, setting.transposed ? setting.n : depth,
           setting.transposed ? depth : setting.n, setting.type, 2) {}

  double a(int m, int k) const { return setting_.a_transposed ? a_.values[k][m] : a_.values[m][k]; }
  double b(int k, int n) const { return setting_.transposed ? b_.values[k][n] : b_.values[n][k]; }
  double product(int m, int n, int k_end = depth) const {
    double sum = 0;
    for (int k = 0; k < k_end; ++k) sum += a(m, k) * b(k, n);
    return sum;
  }

  /// The load of both operands by thread 0, and the wait of everybody.
  void load(const SimulatorInterface& simulator, bool wait = true) const {
    if (simulator.thread_index() == 0) {
      simulator.barrier_initialize(barrier, 1, 1);
      simulator.fence_barrier_initialization(2);
    }
    simulator.block_barrier(3);
    if (simulator.thread_index() == 0) {
      const int panels = setting_.transposed ? (setting_.n + 63) / 64 : 1;
      const int b_rows = setting_.transposed ? depth : setting_.n;
      simulator.barrier_arrive_expecting(barrier, (64 + panels * b_rows) * 128, 4);
      const int start[4] = {0, 0, 0, 0};
      simulator.tensor_load(a_tile, a_.map, barrier, start, 4, 5);
      for (int panel = 0; panel < panels; ++panel) {
        const int place[4] = {panel * 64, 0, 0, 0};
        simulator.tensor_load(b_tile + panel * 64 * 128, b_.map, barrier, place, 4, 6);
      }
    }
    if (wait) simulator.barrier_wait(barrier, 0, 7);
  }

  void load_a_again(const SimulatorInterface& simulator, int site) const {
    const int start[4] = {0, 0, 0, 0};
    simulator.tensor_load(a_tile, a_.map, barrier, start, 4, site);
  }

  /// Step `k` of depth / 16: D (+)= A B over 16 k's.
  void multiply(const SimulatorInterface& simulator, int k, float* d, const unsigned* registers,
                bool accumulate, int site) const {
    const unsigned descriptor_a = (a_tile + k * (setting_.a_transposed ? 16 * 128 : 32)) / 16;
    const unsigned descriptor_b =
        setting_.transposed ? (b_tile + k * 16 * 128) / 16 | 64 * 128 / 16 << 16 : (b_tile + k * 32) / 16;
    simulator.warpgroup_multiply(setting_.n, d, registers, descriptor_a, descriptor_b, accumulate,
                                 setting_.transposed + 2 * setting_.a_transposed,
                                 static_cast<int>(setting_.type), site);
  }

  /// The thread's four registers of A's step `k`.
  void load_registers(const SimulatorInterface& simulator, int k, unsigned (&registers)[4]) const {
    const int thread = simulator.thread_index(), lane = thread % 32;
    for (int i = 0; i < 4; ++i) {
      const int row = thread / 32 * 16 + lane / 4 + i % 2 * 8, column = k * 16 + lane % 4 * 2 + i / 2 * 8;
      registers[i] = element(a(row, column), setting_.type) |
                     static_cast<unsigned>(element(a(row, column + 1), setting_.type)) << 16;
    }
  }

  Report run(const KernelBody& body, uint64_t seed = 0, int warps = 4) {
    return run_body(body, {.warps = warps,
                           .shared_memory = static_cast<int>(shared_bytes),
                           .buffers = {a_.buffer(), b_.buffer()},
                           .seed = seed});
  }

  const Setting& setting() const { return setting_; }

 private:
  Setting setting_;
  Operand a_, b_;
};

constexpr int most_registers = 128;

/// Which element of D a register holds: row and column.
std::pair<int, int> place_of(int thread, int index) {
  return {thread / 32 * 16 + thread % 32 / 4 + index / 2 % 2 * 8, index / 4 * 8 + thread % 4 * 2 + index % 2};
}

class ProductShapes : public testing::TestWithParam<Setting> {};

TEST_P(ProductShapes, MatchAPlainProduct) {
  const Setting& setting = GetParam();
  Products products(setting);
  std::vector<std::vector<float>> d(128, std::vector<float>(most_registers, 5.0f));
  const KernelBody body = [&](const SimulatorInterface& simulator) {
    float* const mine = d[simulator.thread_index()].data();
    unsigned registers[4][4];
    for (int k = 0; k < 4; ++k) products.load_registers(simulator, k, registers[k]);
    products.load(simulator);
    simulator.warpgroup_fence(10);
    for (int k = 0; k < 4; ++k) {
      products.multiply(simulator, k, mine, setting.a_in_registers ? registers[k] : nullptr, k > 0, 11);
    }
    simulator.warpgroup_commit(12);
    simulator.warpgroup_wait(0, 13);
  };
  for (const uint64_t seed : {0, 1, 5}) {
    expect_ok(products.run(body, seed));
    for (int thread = 0; thread < 128; ++thread) {
      for (int i = 0; i < most_registers; ++i) {
        const auto [row, column] = place_of(thread, i);
        const double expected = i < setting.n / 2 ? products.product(row, column) : 5;
        ASSERT_EQ(d[thread][i], expected) << "thread " << thread << " register " << i;
      }
    }
  }
}

std::vector<Setting> shapes() {
  std::vector<Setting> settings;
  for (const int n : {8, 16, 64, 72, 80, 128, 176, 200, 256}) {
    for (const bool transposed : {false, true}) {
      for (const bool a_in_registers : {false, true}) {
        const ElementType type = n % 16 ? ElementType::fp16 : ElementType::bf16;
        settings.push_back({n, transposed, a_in_registers, type});
        if (!a_in_registers) settings.push_back({n, transposed, false, type, true});
      }
    }
  }
  return settings;
}

INSTANTIATE_TEST_SUITE_P(Hopper, ProductShapes, testing::ValuesIn(shapes()), [](const auto& info) {
  const Setting& setting = info.param;
  return "n" + std::to_string(setting.n) + (setting.transposed ? "_transposed" : "") +
         (setting.a_in_registers ? "_registers"
          : setting.a_transposed ? "_a_transposed"
                                 : "");
});

// --- asynchronous completion

TEST(Products, AddToWhatIsThere) {
  Products products({});
  int wrong = 0;
  expect_ok(products.run([&](const SimulatorInterface& simulator) {
    float d[36];
    for (int i = 0; i < 36; ++i) d[i] = static_cast<float>(i);
    products.load(simulator);
    simulator.warpgroup_fence(10);
    products.multiply(simulator, 0, d, nullptr, true, 11);
    simulator.warpgroup_commit(12);
    simulator.warpgroup_wait(0, 13);
    for (int i = 0; i < 36; ++i) {
      const auto [row, column] = place_of(simulator.thread_index(), i);
      wrong += d[i] != i + products.product(row, column, 16);
    }
  }));
  EXPECT_EQ(wrong, 0);
}

TEST(Products, AccumulatorsAreNaNUntilTheirGroupIsWaitedFor) {
  Products products({});
  int early = 0, wrong = 0;
  expect_ok(products.run([&](const SimulatorInterface& simulator) {
    float first[36] = {}, second[36] = {};
    products.load(simulator);
    simulator.warpgroup_fence(10);
    products.multiply(simulator, 0, first, nullptr, false, 11);
    simulator.warpgroup_commit(12);
    products.multiply(simulator, 1, second, nullptr, false, 13);
    simulator.warpgroup_commit(14);
    for (const float value : first) early += !std::isnan(value);
    simulator.warpgroup_wait(2, 15);
    for (const float value : first) early += !std::isnan(value);
    simulator.warpgroup_wait(1, 16);
    for (int i = 0; i < 36; ++i) {
      const auto [row, column] = place_of(simulator.thread_index(), i);
      wrong += first[i] != products.product(row, column, 16);
      early += !std::isnan(second[i]);
    }
    simulator.warpgroup_wait(0, 17);
    for (int i = 0; i < 36; ++i) {
      const auto [row, column] = place_of(simulator.thread_index(), i);
      wrong += second[i] != products.product(row, column, 32) - products.product(row, column, 16);
    }
  }));
  EXPECT_EQ(early, 0);
  EXPECT_EQ(wrong, 0);
}

// Two groups add to one D: it is there when both are done.
TEST(Products, GroupsMayShareAccumulators) {
  Products products({});
  int early = 0, wrong = 0;
  expect_ok(products.run([&](const SimulatorInterface& simulator) {
    float d[36] = {}, other[36] = {};
    products.load(simulator);
    simulator.warpgroup_fence(10);
    products.multiply(simulator, 0, d, nullptr, false, 11);
    simulator.warpgroup_commit(12);
    products.multiply(simulator, 2, other, nullptr, false, 13);
    products.multiply(simulator, 1, d, nullptr, true, 14);
    simulator.warpgroup_commit(15);
    simulator.warpgroup_wait(1, 16);
    for (const float value : d) early += !std::isnan(value);
    simulator.warpgroup_wait(0, 17);
    for (int i = 0; i < 36; ++i) {
      const auto [row, column] = place_of(simulator.thread_index(), i);
      wrong += d[i] != products.product(row, column, 32);
      wrong += other[i] != products.product(row, column, 48) - products.product(row, column, 32);
    }
  }));
  EXPECT_EQ(early, 0);
  EXPECT_EQ(wrong, 0);
}

TEST(Products, RegistersOfAAreReadLate) {
  Products products({.a_in_registers = true});
  int wrong = 0;
  expect_ok(products.run([&](const SimulatorInterface& simulator) {
    float d[36];
    unsigned registers[4];
    products.load_registers(simulator, 0, registers);
    products.load(simulator);
    simulator.warpgroup_fence(10);
    products.multiply(simulator, 0, d, registers, false, 11);
    simulator.warpgroup_commit(12);
    std::fill(registers, registers + 4, 0u);
    simulator.warpgroup_wait(0, 13);
    for (const float value : d) wrong += value != 0;
  }));
  EXPECT_EQ(wrong, 0);
}

// --- faults

struct Fault {
  const char* name;
  std::function<void(const SimulatorInterface& simulator, const Products& products)> body;
  std::vector<std::string> parts;
  int warps = 4;
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

void multiply_and_wait(const SimulatorInterface& simulator, const Products& products, float* d) {
  simulator.warpgroup_fence(10);
  products.multiply(simulator, 0, d, nullptr, false, 11);
  simulator.warpgroup_commit(12);
  simulator.warpgroup_wait(0, 13);
}

class ProductFault : public testing::TestWithParam<Fault> {};

TEST_P(ProductFault, IsReported) {
  const Fault& fault = GetParam();
  Products products({});
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Report report = products.run(
        [&](const SimulatorInterface& simulator) { fault.body(simulator, products); }, seed, fault.warps);
    EXPECT_FALSE(report.ok) << "seed " << seed << ": no fault found";
    for (const std::string& part : fault.parts) {
      EXPECT_NE(report.message.find(part), std::string::npos)
          << "\"" << part << "\" not in: " << report.message;
    }
  }
}

using Simulator = const SimulatorInterface&;

std::vector<Fault> faults() {
  return {
      {"no_fence",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         p.multiply(s, 0, d, nullptr, false, 11);
       },
       {"warpgroup_multiply at line 11", "warpgroup_fence is missing"}},
      {"no_fence_after_a_wait",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         multiply_and_wait(s, p, d);
         p.multiply(s, 0, d, nullptr, true, 21);
       },
       {"warpgroup_multiply at line 21", "warpgroup_fence is missing"}},
      {"no_wait",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         s.warpgroup_fence(10);
         p.multiply(s, 0, d, nullptr, false, 11);
         s.warpgroup_commit(12);
         s.block_barrier(13);
       },
       {"exits with products still in flight"}},
      {"no_commit",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         s.warpgroup_fence(10);
         p.multiply(s, 0, d, nullptr, false, 11);
         s.warpgroup_wait(0, 13);
       },
       {"exits with products still in flight"}},
      {"accumulators_written_in_flight",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         s.warpgroup_fence(10);
         p.multiply(s, 0, d, nullptr, false, 11);
         s.warpgroup_commit(12);
         d[7] = 1;
         s.warpgroup_wait(0, 13);
       },
       {"warpgroup_wait at line 13", "written while it was at work", "warpgroup_multiply at line 11"}},
      {"operands_not_waited_for",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s, false);
         s.block_barrier(9);
         multiply_and_wait(s, p, d);
       },
       {"race: the read", "the copy engine, tensor_load at line"}},
      {"operands_loaded_again_too_early",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         if (s.thread_index() == 0) s.barrier_initialize(8, 4, 20);
         s.block_barrier(21);
         s.warpgroup_fence(10);
         p.multiply(s, 0, d, nullptr, false, 11);
         s.warpgroup_commit(12);
         if (s.thread_index() % 32 == 0) s.barrier_arrive(8, 22);  // before the wait
         if (s.thread_index() == 0) {
           s.barrier_wait(8, 0, 23);
           p.load_a_again(s, 24);
         }
         s.warpgroup_wait(0, 13);
       },
       {"tensor_load at line 24", "race: the write", "the read by a product of warp", "still in flight"}},
      {"operand_stored_by_a_thread",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         const uint32_t zeros[4] = {};
         if (s.thread_index() == 9) s.shared_store(b_tile, zeros, 16, 20);
         s.block_barrier(21);
         multiply_and_wait(s, p, d);
       },
       {"stored by warp 0 lane 9, shared_store at line 20", "fence.proxy.async"}},
      {"operand_not_written",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         s.warpgroup_fence(10);
         s.warpgroup_multiply(72, d, nullptr, a_tile / 16, (b_tile + 128 * 128) / 16, 0, 0, 1, 11);
         s.warpgroup_commit(12);
         s.warpgroup_wait(0, 13);
       },
       {"warpgroup_multiply at line 11", "uninitialised read"}},
      {"operand_outside",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         s.warpgroup_fence(10);
         s.warpgroup_multiply(72, d, nullptr, a_tile / 16, (shared_bytes - 1024) / 16, 0, 0, 1, 11);
         s.warpgroup_commit(12);
       },
       {"warpgroup_multiply at line 11"}},
      {"misaligned_descriptor",
       [](Simulator s, const Products&) {
         float d[36];
         s.warpgroup_fence(10);
         s.warpgroup_multiply(72, d, nullptr, (a_tile + 128) / 16, b_tile / 16, 0, 0, 1, 11);
       },
       {"descriptor", "operand a", "shared byte 1152"}},
      {"n_of_12",
       [](Simulator s, const Products&) {
         float d[36];
         s.warpgroup_fence(10);
         s.warpgroup_multiply(12, d, nullptr, a_tile / 16, b_tile / 16, 0, 0, 1, 11);
       },
       {"n is 12, expected a multiple of 8"}},
      {"lanes_disagree",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         s.warpgroup_fence(10);
         p.multiply(s, s.thread_index() == 77, d, nullptr, false, 11);
         s.warpgroup_commit(12);
         s.warpgroup_wait(0, 13);
       },
       {"warp 2 lane", "lanes of one warp ask for different products"}},
      {"a_lane_skips_a_product",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         s.warpgroup_fence(10);
         if (s.thread_index() != 77) p.multiply(s, 0, d, nullptr, false, 11);
         s.warpgroup_commit(12);
         s.warpgroup_wait(0, 13);
       },
       {"lanes of one warp have issued different numbers of products"}},
      {"warps_disagree",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         s.warpgroup_fence(10);
         p.multiply(s, s.thread_index() / 32 == 2, d, nullptr, false, 11);
         s.warpgroup_commit(12);
         s.warpgroup_wait(0, 13);
       },
       {"the warps of one warpgroup commit different products"}},
      {"a_warp_stays_away",
       [](Simulator s, const Products& p) {
         float d[36];
         p.load(s);
         if (s.thread_index() / 32 != 2) multiply_and_wait(s, p, d);
       },
       {"warps 0 to 3 are a warpgroup, but only 3 of them"}},
      {"no_warpgroup",
       [](Simulator s, const Products&) {
         if (s.thread_index() >= 128) s.warpgroup_fence(10);
       },
       {"belongs to no warpgroup"},
       6},
  };
}

INSTANTIATE_TEST_SUITE_P(Hopper, ProductFault, testing::ValuesIn(faults()),
                         [](const auto& fault) { return fault.param.name; });

}  // namespace
}  // namespace tilewright::simulator
