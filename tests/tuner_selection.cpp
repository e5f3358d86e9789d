// The choice between candidates, by a simulated clock whose true times are known.
#include "tuner/selection.h"

#include <gtest/gtest.h>

#include "tests/support/simulated_clock.h"

namespace tilewright {
namespace {

using test::SimulatedClock;

std::vector<Footprint> alike(size_t count) {
  return std::vector<Footprint>(count, Footprint{65536, 256});
}

// 20 candidates, candidate 7 the fastest by 5 %, the default 8 % behind it.
std::vector<double> twenty() {
  std::vector<double> times;
  for (int i = 0; i < 20; ++i) times.push_back(108 + 7 * ((i * 7) % 20));
  times[0] = 108;
  times[7] = 100;
  times[12] = 105;
  return times;
}

TEST(Selection, FindsTheFastest) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SimulatedClock clock(twenty(), 0.01, seed);
    const Selection found = select_fastest(alike(20), clock, {.seed = seed});
    EXPECT_EQ(found.winner, 7);
    EXPECT_NEAR(found.gain, 0.08, 0.02);
    EXPECT_GE(found.margin, SelectionOptions().least_margin);
    EXPECT_GT(found.candidates[7].samples.size(), found.candidates[19].samples.size());
  }
}

// Case J1.
TEST(Selection, KeepsTheDefaultBesideAnEqualCandidate) {
  int kept = 0, slow_won = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SimulatedClock clock({100, 100, 200}, 0.03, 1000 + seed);
    const Selection found = select_fastest({{9, 9}, {1, 1}, {1, 1}}, clock, {.seed = seed});
    kept += found.winner == 0;
    slow_won += found.winner == 2;
  }
  EXPECT_GE(kept, 198);
  EXPECT_EQ(slow_won, 0);
}

// Case J2.
TEST(Selection, TwoRunsAgreeOnNearlyEqualCandidates) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    int winners[2];
    for (int run = 0; run < 2; ++run) {
      SimulatedClock clock({120, 100, 100.1}, 0.01, 2 * seed + run);
      winners[run] = select_fastest({{1, 1}, {5, 2}, {4, 2}}, clock, {.seed = 7 * seed + run}).winner;
    }
    EXPECT_EQ(winners[0], winners[1]);
    EXPECT_EQ(winners[0], 2) << "of equally fast ones the one that takes less";
  }
}

TEST(Selection, TwoRunsEndWithinOnePercentOfEachOther) {
  // A field so dense that many are equal for the clock, the default among them or not.
  for (int place : {1, 5, 9})
    for (uint64_t seed = 0; seed < 20; ++seed) {
      std::vector<double> times;
      for (int i = 0; i < 16; ++i) times.push_back(100 + 0.2 * ((i * 7 + place) % 16));
      double chosen[2];
      for (int run = 0; run < 2; ++run) {
        SimulatedClock clock(times, 0.01, 100 * seed + run);
        const Selection found = select_fastest(alike(16), clock, {.seed = 9 * seed + run});
        chosen[run] = times[static_cast<size_t>(found.winner)];
      }
      EXPECT_NEAR(chosen[0], chosen[1], 0.01 * chosen[0]) << place << ", seed " << seed;
    }
}

// Case J7.
TEST(Selection, AClockThatSpeedsUpMisleadsNobody) {
  for (bool reversed : {false, true})
    for (uint64_t seed = 0; seed < 20; ++seed) {
      std::vector<double> times = {112, 106, 100, 103, 109, 118};
      if (reversed) std::reverse(times.begin(), times.end());
      SimulatedClock clock(times, 0.005, seed);
      clock.drift = [](int launch) { return 1 - 0.3 * std::min(1.0, launch / 150.0); };
      const Selection found = select_fastest(alike(6), clock, {.seed = seed});
      EXPECT_EQ(found.winner, reversed ? 3 : 2);
    }
}

TEST(Selection, OutliersDoNotDecide) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SimulatedClock clock({105, 100, 103}, 0.01, seed);
    clock.outliers = 0.1;
    EXPECT_EQ(select_fastest(alike(3), clock, {.seed = seed}).winner, 1);
  }
}

TEST(Selection, ThrottledSamplesAreDiscarded) {
  SimulatedClock clock({106, 100}, 0.005, 1);
  clock.throttled_at = [](int launch) { return launch % 40 < 12; };
  const Selection found = select_fastest(alike(2), clock);
  EXPECT_EQ(found.winner, 1);
  EXPECT_GT(found.throttled, 0);
  for (double sample : found.candidates[1].samples) EXPECT_LT(sample, 110);
}

TEST(Selection, AGpuThatIsAlwaysThrottledDecidesNothing) {
  SimulatedClock clock({106, 100}, 0.005, 1);
  clock.throttled_at = [](int) { return true; };
  const Selection found = select_fastest(alike(2), clock);
  EXPECT_EQ(found.winner, -1);
  EXPECT_EQ(found.note, "the GPU was throttled throughout");
}

TEST(Selection, ACandidateThatFailsIsOutAndNamed) {
  SimulatedClock clock({110, 50, 100, 104}, 0.01, 3);
  clock.failures[1] = {"illegal address", 4};  // it would have been the fastest
  const Selection found = select_fastest(alike(4), clock);
  EXPECT_EQ(found.winner, 2);
  EXPECT_EQ(found.candidates[1].failure, "illegal address");
  EXPECT_EQ(found.candidates[2].failure, "");
}

TEST(Selection, WithoutTheDefaultTheBestOfTheRest) {
  SimulatedClock clock({90, 103, 100}, 0.001, 3);
  clock.failures[0] = {"hangs", 1};
  const Selection found = select_fastest(alike(3), clock);
  EXPECT_EQ(found.winner, 2);
  EXPECT_EQ(found.note, "the default failed: hangs");
  SimulatedClock none({90, 100}, 0.01, 3);
  none.failures = {{0, {"hangs", 1}}, {1, {"hangs", 1}}};
  EXPECT_EQ(select_fastest(alike(2), none).winner, -1);
}

TEST(Selection, SlowCandidatesCostFewLaunches) {
  std::vector<double> times(64, 300);
  times[0] = 100;
  times[33] = 95;
  SimulatedClock clock(times, 0.01, 1);
  const Selection found = select_fastest(alike(64), clock);
  EXPECT_EQ(found.winner, 33);
  EXPECT_LE(clock.count[50], 5);
  SimulatedClock all(times, 0.01, 1);
  EXPECT_EQ(select_fastest(alike(64), all, {.exhaustive = true}).winner, 33);
  EXPECT_GE(all.count[50], 20);
}

TEST(Selection, ADeadlineEndsItWithWhatIsKnown) {
  SimulatedClock clock(twenty(), 0.01, 1);
  const Selection found = select_fastest(alike(20), clock, {.deadline = 0.02});
  EXPECT_TRUE(found.out_of_time);
  EXPECT_EQ(found.winner, 7);
  EXPECT_LT(clock.seconds(), 0.1);
}

TEST(Selection, TheSameSamplesGiveTheSameAnswer) {
  SimulatedClock first(twenty(), 0.02, 5), second(twenty(), 0.02, 5);
  const Selection a = select_fastest(alike(20), first, {.seed = 9}),
                  b = select_fastest(alike(20), second, {.seed = 9});
  EXPECT_EQ(a.winner, b.winner);
  EXPECT_EQ(a.gain, b.gain);
  EXPECT_EQ(a.candidates[3].samples, b.candidates[3].samples);
}

TEST(Selection, MediansAndDeviations) {
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(deviation_of({1, 2, 3, 4, 100}), 1);
}

}  // namespace
}  // namespace tilewright
