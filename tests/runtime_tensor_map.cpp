// What the copy engine is told of q, k and v.
#include "runtime/tensor_map.h"

#include <gtest/gtest.h>

#include "codegen/error.h"
#include "runtime/arguments.h"
#include "tests/support/runtime_support.h"

namespace tilewright {
namespace {

alignas(256) char memory[256], elsewhere[256];

struct Expected {
  std::vector<uint64_t> sizes;    // columns, rows, heads, batch
  std::vector<uint64_t> strides;  // bytes
};

struct Case {
  const char* what;
  Layout layout;
  std::vector<int64_t> shape;  // batch, sequence, heads, head_dim
  std::vector<int64_t> strides;
  Expected expected;
};

TEST(TensorMap, SizesAndStrides) {
  const Case cases[] = {
      {"contiguous", Layout::bshd, {2, 20, 4, 72}, {}, {{72, 20, 4, 2}, {576, 144, 11520}}},
      {"heads before rows", Layout::bhsd, {2, 20, 4, 72}, {}, {{72, 20, 4, 2}, {144, 2880, 11520}}},
      {"a view with gaps",
       Layout::bshd,
       {2, 20, 4, 64},
       {9999 * 8, 512, 72, 1},
       {{64, 20, 4, 2}, {1024, 144, 159984}}},
      {"broadcast", Layout::bshd, {2, 20, 4, 64}, {0, 64, 0, 1}, {{64, 20, 4, 2}, {128, 0, 0}}},
      // Case E3.
      {"size-1 dimensions", Layout::bshd, {1, 1, 1, 64}, {0, 7, 1, 1}, {{64, 1, 1, 1}, {128, 128, 128}}},
      {"size-1 dimensions with absurd strides",
       Layout::bshd,
       {1, 20, 1, 64},
       {int64_t{1} << 60, 64, -3, 1},
       {{64, 20, 1, 1}, {128, 128, 128}}},
      {"the largest stride",
       Layout::bshd,
       {2, 20, 4, 64},
       {(int64_t{1} << 39) - 8, 256, 64, 1},
       {{64, 20, 4, 2}, {512, 128, (uint64_t{1} << 40) - 16}}},
      {"as many rows as there can be",
       Layout::bshd,
       {1, INT32_MAX, 1, 8},
       {},
       {{8, INT32_MAX, 1, 1}, {16, 16, 16}}},
  };
  for (const Case& c : cases) {
    AttentionSpec spec;
    spec.layout = c.layout;
    const TensorView view{memory, DataType::fp16, c.shape, c.strides};
    const TensorMapRequest map = describe_tensor_map(spec, "k", view, 112, elsewhere);
    EXPECT_EQ(std::vector<uint64_t>(map.sizes, map.sizes + 4), c.expected.sizes) << c.what;
    EXPECT_EQ(std::vector<uint64_t>(map.strides, map.strides + 3), c.expected.strides) << c.what;
    EXPECT_EQ(map.data, memory) << c.what;
    EXPECT_EQ(map.box_rows, 112u) << c.what;
    EXPECT_EQ(map.type, DataType::fp16) << c.what;
  }
}

// A map has no size 0, and a tensor without elements may have any pointer and strides.
TEST(TensorMap, NoKeys) {
  for (const TensorView& view :
       {TensorView{nullptr, DataType::bf16, {2, 0, 4, 64}, {}},
        TensorView{memory + 3, DataType::bf16, {2, 0, 4, 64}, {-1, 7, int64_t{1} << 62, 3}}}) {
    const TensorMapRequest map = describe_tensor_map({}, "k", view, 64, elsewhere);
    EXPECT_EQ(map.data, elsewhere);
    EXPECT_EQ(std::vector<uint64_t>(map.sizes, map.sizes + 4), (std::vector<uint64_t>{64, 1, 1, 1}));
    EXPECT_EQ(std::vector<uint64_t>(map.strides, map.strides + 3), (std::vector<uint64_t>{128, 128, 128}));
  }
}

TEST(TensorMap, StridesThatNoMapHolds) {
  const int64_t most = int64_t{1} << 39;  // elements of 2 bytes
  const struct {
    const char* message;
    std::vector<int64_t> strides;
  } cases[] = {{"v: batch stride is 549755813888 elements", {most, 256, 64, 1}},
               {"v: sequence stride is 549755813888 elements", {64, most, 64, 1}},
               {"v: head stride is 549755813896 elements", {64, 64, most + 8, 1}}};
  for (const auto& [message, strides] : cases) {
    const TensorView view{memory, DataType::bf16, {2, 20, 4, 64}, strides};
    const std::string text =
        test::message_of<Error>([&] { describe_tensor_map({}, "v", view, 64, elsewhere); });
    EXPECT_EQ(text, std::string(message) +
                        "; a kernel of the sm90 family takes strides below 2^40 bytes, one of a spec with "
                        "`blocks: {family: sm80}` takes any");
  }
}

class HopperLaunch : public testing::Test {
 protected:
  AttentionSpec spec_ = parse_spec("{head_dim: {qk: 64, v: 32}, gqa_ratio: 2}", "spec");
  ForwardArguments arguments_ = {
      .q = {memory, DataType::bf16, {2, 200, 4, 64}, {}},
      .k = {memory + 16, DataType::bf16, {2, 30, 2, 64}, {}},
      .v = {memory + 32, DataType::bf16, {2, 30, 2, 32}, {}},
      .out = {memory, DataType::bf16, {2, 200, 4, 32}, {}},
  };
  const Schedule schedule_{.family = Family::sm90, .block_m = 128, .block_n = 96, .warps = 12, .stages = 2};
};

TEST_F(HopperLaunch, FoldedHeadsAreTheSecondDimension) {
  Schedule schedule = schedule_;
  schedule.pack_group = 2;
  const PreparedLaunch launch = prepare_launch(spec_, schedule, arguments_);
  const TensorMapRequest& q = launch.q_map;
  EXPECT_EQ(std::vector<uint64_t>(q.sizes, q.sizes + 4), (std::vector<uint64_t>{64, 4, 200, 2}));
  EXPECT_EQ(std::vector<uint64_t>(q.strides, q.strides + 3), (std::vector<uint64_t>{128, 512, 102400}));
  EXPECT_EQ(q.box_heads, 2u);
  EXPECT_EQ(q.box_rows, 32u);
  EXPECT_EQ(launch.k_map.box_heads, 1u);
  EXPECT_EQ(launch.k_map.sizes[1], 30u);
  EXPECT_EQ(launch.plan.m_tiles, 4) << "64 positions a tile";
  EXPECT_EQ(launch.plan.tiles, 4 * 2 * 2);
  EXPECT_EQ(launch.parameters.heads, 4);
}

TEST_F(HopperLaunch, HasAMapOfEachInput) {
  const PreparedLaunch launch = prepare_launch(spec_, schedule_, arguments_);
  EXPECT_EQ(launch.q_map.data, memory);
  EXPECT_EQ(launch.q_map.box_rows, 64u) << "a consumer's rows, however many consumers there are";
  EXPECT_EQ(launch.k_map.data, memory + 16);
  EXPECT_EQ(launch.k_map.box_rows, 96u);
  EXPECT_EQ(launch.k_map.sizes[1], 30u);
  EXPECT_EQ(launch.v_map.data, memory + 32);
  EXPECT_EQ(launch.v_map.sizes[0], 32u);

  int counters[2];
  std::string encoded;
  const auto encode = [&](const TensorMapRequest& request) {
    encoded += request.name;
    return TensorMap{{encoded.size()}};
  };
  const HopperForwardParameters parameters = hopper_parameters(launch, counters, encode);
  EXPECT_EQ(encoded, "qkv");
  EXPECT_EQ(parameters.q_map.words[0], 1u);
  EXPECT_EQ(parameters.v_map.words[0], 3u);
  EXPECT_EQ(parameters.forward.seqlen_kv, 30);
  EXPECT_EQ(parameters.forward.m_tiles, 2);
  EXPECT_EQ(parameters.tiles, 2 * 4 * 2);
  EXPECT_EQ(parameters.section_heads, launch.plan.section_heads);
  EXPECT_EQ(parameters.counters, counters);
}

TEST_F(HopperLaunch, ReadsNothingOfMissingKeys) {
  arguments_.k = {nullptr, DataType::bf16, {2, 0, 2, 64}, {}};
  arguments_.v = {nullptr, DataType::bf16, {2, 0, 2, 32}, {}};
  const PreparedLaunch launch = prepare_launch(spec_, schedule_, arguments_);
  EXPECT_EQ(launch.k_map.data, memory);
  EXPECT_EQ(launch.v_map.data, memory);
}

TEST_F(HopperLaunch, WithoutTilesHasNoMaps) {
  for (TensorView* view : {&arguments_.q, &arguments_.out})
    *view = {nullptr, DataType::bf16, {2, 0, 4, view->shape[3]}, {}};
  EXPECT_EQ(prepare_launch(spec_, schedule_, arguments_).plan.tiles, 0);
}

}  // namespace
}  // namespace tilewright
