// The copy engine: boxes, swizzle and zero fill index by index, when they land, whom their barrier orders.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "simulator/tensor_map.h"
#include "tests/simulator_support.h"

namespace tilewright::simulator {
namespace {

constexpr unsigned barrier = 0, tile = 1024;
constexpr int rows = 16, box_bytes = rows * 128;

/// A tensor [batch][head][row][column] of 2 x 3 x 20 x 72 elements whose values tell their place, with room
/// between rows.
class Tensor {
 public:
  static constexpr int columns = 72, pitch = 80, length = 20, heads = 3, batch = 2;
  Tensor() {
    for (size_t i = 0; i < sizeof data_ / 2; ++i) data_[i] = static_cast<uint16_t>(i + 1);
    SimulatedTensorMap map{.base = data_, .element_bytes = 2};
    const int64_t extents[4] = {columns, length, heads, batch};
    const int64_t strides[3] = {pitch * 2, length * pitch * 2, heads * length * pitch * 2};
    const int box[4] = {64, rows, 1, 1};
    std::copy(extents, extents + 4, map.extents);
    std::copy(strides, strides + 3, map.strides);
    std::copy(box, box + 4, map.box);
    this->map = map;
  }
  uint16_t at(const int (&place)[4]) const {
    const int extents[4] = {columns, length, heads, batch};
    for (int i = 0; i < 4; ++i) {
      if (place[i] < 0 || place[i] >= extents[i]) return 0;
    }
    return data_[((place[3] * heads + place[2]) * length + place[1]) * pitch + place[0]];
  }
  Buffer buffer() { return {data_, sizeof data_, "tensor"}; }

  SimulatedTensorMap map;

 private:
  alignas(16) uint16_t data_[batch * heads * length * pitch];
};

struct Step {
  bool fence = true, meet = true, wait = true;
  int expected = box_bytes;
  unsigned destination = tile;
};

/// Thread 0 of warp 0 loads a box, warp 1 waits for it and looks at it.
Report load_box(Tensor& tensor, const int (&place)[4], std::vector<uint16_t>& found, uint64_t seed,
                Step step = {}, bool check_races = true) {
  alignas(64) unsigned char map[128];
  encode(tensor.map, map);
  found.assign(rows * 64, 0xdead);
  return run_body(
      [&](const SimulatorInterface& simulator) {
        const int thread = simulator.thread_index();
        if (thread == 0) {
          simulator.barrier_initialize(barrier, 1, 1);
          if (step.fence) simulator.fence_barrier_initialization(2);
        }
        if (step.meet) simulator.block_barrier(3);
        if (thread == 0) {
          simulator.barrier_arrive_expecting(barrier, step.expected, 10);
          simulator.tensor_load(step.destination, map, barrier, place, 4, 11);
        }
        if (thread < 32) return;
        if (step.wait) simulator.barrier_wait(barrier, 0, 12);
        for (int i = thread - 32; i < box_bytes / 4; i += 32)
          simulator.shared_load(&found[2 * i], tile + 4 * i, 4, 13);
      },
      {.warps = 2,
       .shared_memory = 8192,
       .buffers = {tensor.buffer()},
       .seed = seed,
       .check_races = check_races});
}

TEST(TensorCopy, SwizzlesAndFillsWithZeros) {
  Tensor tensor;
  const int places[][4] = {{0, 0, 0, 0},   {0, 4, 2, 1},   {64, 0, 1, 0}, {64, 10, 2, 1},
                           {-8, -3, 0, 0}, {0, 20, 0, 0},  {0, 0, 3, 0},  {0, 0, -1, 1},
                           {0, 0, 0, 2},   {128, 0, 0, 0}, {3, 19, 1, 1}};
  for (const auto& place : places) {
    for (const uint64_t seed : {0, 1, 2}) {
      std::vector<uint16_t> found;
      expect_ok(load_box(tensor, place, found, seed));
      for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < 64; ++column) {
          const int at[4] = {place[0] + column, place[1] + row, place[2], place[3]};
          // Chunks of 8 elements change places within their row of 128 bytes.
          const int index = row * 64 + ((column / 8) ^ (row % 8)) * 8 + column % 8;
          ASSERT_EQ(found[index], tensor.at(at)) << "row " << row << " column " << column;
        }
      }
    }
  }
}

TEST(TensorCopy, NothingOutsideIsRead) {
  Tensor tensor;
  tensor.map.extents[1] = Tensor::length + 1;  // the batch's last head has no such row
  std::vector<uint16_t> found;
  expect_ok(load_box(tensor, {0, 4, 2, 1}, found, 0));
  expect_fault(load_box(tensor, {0, 5, 2, 1}, found, 0),
               {"tensor_load at line 11", "row 15 of the box", "outside of every buffer", "\"tensor\""});
}

// --- when

// What the issuing thread sees at once, without the race checker, which would not let it look.
TEST(TensorCopy, EarlyWithSeed0LateWithSeed1) {
  Tensor tensor;
  alignas(64) unsigned char map[128];
  encode(tensor.map, map);
  for (const uint64_t seed : {0, 1}) {
    uint32_t before = 0, after = 0;
    expect_ok(run_body(
        [&](const SimulatorInterface& simulator) {
          if (simulator.thread_index() != 0) return;
          const int place[4] = {0, 0, 0, 0};
          simulator.barrier_initialize(0, 1, 1);
          simulator.fence_barrier_initialization(2);
          simulator.barrier_arrive_expecting(0, box_bytes, 10);
          simulator.tensor_load(tile, map, 0, place, 4, 11);
          simulator.shared_load(&before, tile, 4, 12);
          simulator.barrier_wait(0, 0, 13);
          simulator.shared_load(&after, tile, 4, 14);
        },
        {.shared_memory = 8192, .buffers = {tensor.buffer()}, .seed = seed, .check_races = false}));
    EXPECT_EQ(after, 0x00020001u);
    EXPECT_EQ(before, seed == 0 ? after : 0xffffffffu) << "bytes in flight must be poisoned";
  }
}

TEST(TensorCopy, TheBarrierIsWaitedFor) {
  Tensor tensor;
  std::vector<uint16_t> found;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_FALSE(load_box(tensor, {0, 0, 0, 0}, found, seed, {.wait = false}).ok);
  }
}

TEST(TensorCopy, WrongByteCounts) {
  Tensor tensor;
  std::vector<uint16_t> found;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    expect_fault(load_box(tensor, {0, 0, 0, 0}, found, seed, {.expected = box_bytes + 128}),
                 {"deadlock", "128 bytes"});
    expect_fault(load_box(tensor, {0, 0, 0, 0}, found, seed, {.expected = box_bytes - 128}),
                 {"deadlock", "-128 bytes"});
    EXPECT_FALSE(load_box(tensor, {0, 0, 0, 0}, found, seed, {.expected = 0}).ok);
  }
}

TEST(TensorCopy, TheBarrierMustBeKnown) {
  Tensor tensor;
  std::vector<uint16_t> found;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    expect_fault(load_box(tensor, {0, 0, 0, 0}, found, seed, {.fence = false}),
                 {"the copy engine does not know the barrier at shared byte 0"});
    EXPECT_FALSE(load_box(tensor, {0, 0, 0, 0}, found, seed, {.meet = false}).ok);
  }
}

// --- order

// A tile that is loaded again while a reader of the first load has not said so.
TEST(TensorCopy, OverwritesOnlyWhatReadersHaveLeft) {
  Tensor tensor;
  alignas(64) unsigned char map[128];
  encode(tensor.map, map);
  const auto body = [&](bool wait) {
    return [&, wait](const SimulatorInterface& simulator) {
      const int thread = simulator.thread_index();
      const int place[4] = {0, 0, 0, 0};
      if (thread == 0) {
        simulator.barrier_initialize(0, 1, 1);
        simulator.barrier_initialize(8, 32, 2);
        simulator.fence_barrier_initialization(3);
      }
      simulator.block_barrier(4);
      for (int phase = 0; phase < 3; ++phase) {
        if (thread == 0) {
          if (wait) simulator.barrier_wait(8, phase % 2 ^ 1, 10);
          simulator.barrier_arrive_expecting(0, box_bytes, 11);
          simulator.tensor_load(tile, map, 0, place, 4, 12);
          if (!wait) simulator.barrier_wait(0, phase % 2, 13);
        } else if (thread >= 32) {
          simulator.barrier_wait(0, phase % 2, 14);
          unsigned value;
          simulator.shared_load(&value, tile + 4 * thread, 4, 15);
          simulator.barrier_arrive(8, 16);
        }
      }
    };
  };
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const TestLaunch launch = {.warps = 2, .shared_memory = 8192, .buffers = {tensor.buffer()}, .seed = seed};
    expect_ok(run_body(body(true), launch));
    EXPECT_FALSE(run_body(body(false), launch).ok);
  }
}

TEST(TensorCopy, NobodyWaits) {
  Tensor tensor;
  alignas(64) unsigned char map[128];
  encode(tensor.map, map);
  expect_fault(run_body(
                   [&](const SimulatorInterface& simulator) {
                     if (simulator.thread_index() != 0) return;
                     const int place[4] = {0, 0, 0, 0};
                     simulator.barrier_initialize(0, 1, 1);
                     simulator.fence_barrier_initialization(2);
                     simulator.barrier_arrive_expecting(0, box_bytes, 10);
                     simulator.tensor_load(tile, map, 0, place, 4, 11);
                   },
                   {.shared_memory = 8192, .buffers = {tensor.buffer()}, .seed = 1}),
               {"tensor_load at line 11", "1 tensor copies still in flight"});
}

// --- maps and destinations

struct MapFault {
  const char* name;
  void (*change)(SimulatedTensorMap& map);
  const char* part;
  unsigned destination = tile;
};

TEST(TensorCopy, MapsAndDestinationsAreChecked) {
  const MapFault faults[] = {
      {"base", [](SimulatedTensorMap& map) { map.base = static_cast<const char*>(map.base) + 8; },
       "a multiple of 16"},
      {"stride", [](SimulatedTensorMap& map) { map.strides[0] += 8; }, "stride of 168 bytes"},
      {"box", [](SimulatedTensorMap& map) { map.box[1] = 257; }, "side of 257"},
      {"row", [](SimulatedTensorMap& map) { map.box[0] = 32; }, "rows of 64 bytes, expected 128"},
      {"extent", [](SimulatedTensorMap& map) { map.extents[2] = -1; }, "extent of -1"},
      {"alignment", [](SimulatedTensorMap&) {}, "a multiple of 1024", tile + 128},
      {"end", [](SimulatedTensorMap&) {}, "out of bounds", 7168},
      {"barrier", [](SimulatedTensorMap&) {}, "covers the barrier at 0", 0},
  };
  for (const MapFault& fault : faults) {
    Tensor tensor;
    fault.change(tensor.map);
    std::vector<uint16_t> found;
    const Report report = load_box(tensor, {0, 0, 0, 0}, found, 0, {.destination = fault.destination});
    EXPECT_FALSE(report.ok) << fault.name;
    EXPECT_NE(report.message.find(fault.part), std::string::npos) << fault.name << ": " << report.message;
  }
}

TEST(TensorCopy, AnythingElseIsNoMap) {
  Tensor tensor;
  alignas(64) unsigned char map[128] = {};
  expect_fault(run_body(
                   [&](const SimulatorInterface& simulator) {
                     const int place[4] = {0, 0, 0, 0};
                     simulator.tensor_load(tile, map, 0, place, 4, 11);
                   },
                   {.shared_memory = 8192}),
               {"tensor_load at line 11", "not made by simulator::encode"});
}

}  // namespace
}  // namespace tilewright::simulator
