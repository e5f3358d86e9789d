// Which counter a launch of the sm90 family gets.
#include "runtime/tile_counters.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace tilewright {
namespace {

TEST(StreamSlots, AStreamKeepsItsPlace) {
  StreamSlots slots;
  const int first = slots.find_or_claim(7), second = slots.find_or_claim(0);
  EXPECT_NE(first, second);
  EXPECT_GE(first, 0);
  EXPECT_GE(second, 0);
  EXPECT_EQ(slots.find_or_claim(7), first);
  EXPECT_EQ(slots.find_or_claim(0), second);
}

TEST(StreamSlots, NoneIsLeftForTheStreamAfterTheLast) {
  StreamSlots slots;
  std::set<int> places;
  for (int i = 0; i < StreamSlots::count; ++i) places.insert(slots.find_or_claim(100 + i));
  EXPECT_EQ(places.size(), static_cast<size_t>(StreamSlots::count));
  EXPECT_EQ(*places.begin(), 0);
  EXPECT_EQ(*places.rbegin(), StreamSlots::count - 1);
  EXPECT_EQ(slots.find_or_claim(1), -1);
  EXPECT_EQ(slots.find_or_claim(100 + 63), StreamSlots::count - 1) << "who has a place keeps it";
}

TEST(StreamSlots, ThreadsAgree) {
  constexpr int thread_count = 8, streams = 40;
  for (int attempt = 0; attempt < 20; ++attempt) {
    StreamSlots slots;
    std::vector<std::vector<int>> places(thread_count);
    std::vector<std::thread> threads;
    for (int t = 0; t < thread_count; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < streams; ++i) places[t].push_back(slots.find_or_claim(i));
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::set<int>(places[0].begin(), places[0].end()).size(), static_cast<size_t>(streams));
    for (int t = 1; t < thread_count; ++t) EXPECT_EQ(places[t], places[0]);
  }
}

TEST(TilesToShare, MoreThanBlocksAndCountable) {
  const struct {
    int64_t tiles;
    bool shared;
  } cases[] = {{1, false},
               {131, false},
               {132, false},
               {133, true},
               {100000, true},
               {INT32_MAX - 132, true},
               {INT32_MAX - 131, false},
               {INT32_MAX, false}};
  for (const auto& [tiles, shared] : cases) {
    LaunchPlan plan;
    plan.tiles = tiles;
    EXPECT_EQ(tiles_to_share(plan.tiles, 132), shared) << tiles;
  }
}

}  // namespace
}  // namespace tilewright
