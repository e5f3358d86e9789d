// The tensors of `tilewright run`: poison, layouts, guards.
#include "cli/tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "codegen/error.h"

namespace tilewright::cli {
namespace {

TEST(HostTensor, StartsAsNan) {
  for (DataType type : {DataType::fp16, DataType::bf16, DataType::fp32}) {
    for (double value : HostTensor(type, {1, 2, 3, 8}, Layout::bshd).values()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(HostTensor, KeepsValuesInPlaceInEveryLayout) {
  std::vector<double> values(2 * 3 * 4 * 8);
  std::iota(values.begin(), values.end(), 0);
  HostTensor bshd(DataType::fp32, {2, 3, 4, 8}, Layout::bshd),
      bhsd(DataType::fp32, {2, 3, 4, 8}, Layout::bhsd);
  bshd.fill(values);
  bhsd.fill(values);
  EXPECT_EQ(bshd.values(), values);
  EXPECT_EQ(bhsd.values(), values);
  EXPECT_EQ(bshd.view().strides, (std::vector<int64_t>{96, 32, 8, 1}));
  EXPECT_EQ(bhsd.view().strides, (std::vector<int64_t>{96, 8, 24, 1}));
  EXPECT_NE(bshd.bytes(), bhsd.bytes());
}

TEST(HostTensor, NormalValuesHaveTheirMoments) {
  HostTensor tensor(DataType::fp32, {1, 100, 10, 16}, Layout::bshd);
  tensor.fill_normal(1);
  double sum = 0, squares = 0;
  for (double value : tensor.values()) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 16000, 0, 0.04);  // five standard errors
  EXPECT_NEAR(squares / 16000, 1, 0.06);
}

TEST(HostTensor, AbsurdSizesAreRefused) {
  EXPECT_THROW(HostTensor(DataType::fp32, {int64_t{1} << 40, int64_t{1} << 40, 2, 8}, Layout::bshd), Error);
}

TEST(GuardedTensor, BringsValuesBackAndNoticesStrayWrites) {
  RuntimeOptions options;
  options.device.kind = DeviceChoice::Kind::simulator;
  options.disk_cache = false;
  Runtime runtime(options);
  HostTensor tensor(DataType::fp32, {1, 2, 3, 8}, Layout::bshd);
  tensor.fill_normal(1);
  const std::vector<double> values = tensor.values();
  const ptrdiff_t count = 2 * 3 * 8;
  GuardedTensor guarded(runtime, tensor);
  float* data = static_cast<float*>(guarded.view().data);  // the simulator's memory is the host's
  EXPECT_TRUE(guarded.download());
  EXPECT_EQ(tensor.values(), values);
  data[count - 1] = 5;
  EXPECT_TRUE(guarded.download());
  EXPECT_EQ(tensor.values().back(), 5);
  for (ptrdiff_t stray : {ptrdiff_t{-1}, count}) {
    const float before = data[stray];
    data[stray] = 0;
    EXPECT_FALSE(guarded.download()) << stray;
    data[stray] = before;
    EXPECT_TRUE(guarded.download());
  }
}

}  // namespace
}  // namespace tilewright::cli
