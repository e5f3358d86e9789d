// Where threads meet: shuffles, barriers, and what happens when some do not come.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <set>

#include "simulator/place.h"
#include "tests/simulator_support.h"

namespace tilewright::simulator {
namespace {

constexpr unsigned all_lanes = ~0u;

TEST(Shuffle, EveryMask) {
  const Report report = run_body(
      [](const SimulatorInterface& simulator) {
        const int thread = simulator.thread_index();
        for (int mask = 0; mask < 32; ++mask) {
          EXPECT_EQ(simulator.shuffle_xor(thread * 10, mask, 1), static_cast<unsigned>((thread ^ mask) * 10));
        }
      },
      {.warps = 3});
  expect_ok(report);
}

TEST(Shuffle, BadMask) {
  expect_fault(run_body([](const SimulatorInterface& simulator) { simulator.shuffle_xor(1, 32, 4); }),
               {"shuffle_xor at line 4", "lane mask 32"});
}

TEST(WarpAny, OneLaneIsEnough) {
  expect_ok(run_body(
      [](const SimulatorInterface& simulator) {
        const int thread = simulator.thread_index();
        EXPECT_EQ(simulator.warp_any(thread == 45, 1), thread >= 32);
        EXPECT_EQ(simulator.warp_any(thread < 0, 2), 0);
        EXPECT_EQ(simulator.warp_any(-1, 3), 1);
        EXPECT_EQ(simulator.warp_ballot(thread % 32 == 5 || thread == 40, 4),
                  thread < 32 ? 1u << 5 : 1u << 5 | 1u << 8);
      },
      {.warps = 2}));
}

TEST(Divergence, ShuffleUnderABranch) {
  const Report report = run_body([](const SimulatorInterface& simulator) {
    if (simulator.thread_index() % 2 == 1) simulator.shuffle_xor(1, 4, 10);
    simulator.shuffle_xor(2, 1, 11);
  });
  expect_fault(report, {"divergence", "shuffle_xor at line 10", "shuffle_xor at line 11"});
}

TEST(Divergence, OneLaneSkipsACollective) {
  const Report report = run_body(
      [](const SimulatorInterface& simulator) {
        const int lane = simulator.thread_index() % 32;
        const bool second_warp = simulator.thread_index() >= 32;
        float d[4] = {};
        const unsigned a[4] = {};
        if (!second_warp || lane != 5) simulator.matrix_multiply_16x8x16(d, a, 0, 0, 0, 20);
        simulator.shuffle_xor(1, 1, 21);
      },
      {.warps = 2});
  expect_fault(report,
               {"warp 1", "divergence", "matrix_multiply_16x8x16 at line 20", "shuffle_xor at line 21"});
}

TEST(Divergence, OneLaneExits) {
  const Report report = run_body([](const SimulatorInterface& simulator) {
    if (simulator.thread_index() == 31) return;
    simulator.shuffle_xor(1, 1, 21);
  });
  expect_fault(report, {"divergence: lanes of one warp wait for each other",
                        "warp 0: lanes 0-30 wait at shuffle_xor at line 21; lane 31 has exited"});
  EXPECT_EQ(report.line, 21);
}

TEST(Divergence, SomeLanesAtTheBlockBarrier) {
  const Report report = run_body(
      [](const SimulatorInterface& simulator) {
        if (simulator.thread_index() == 40) {
          simulator.block_barrier(30);
          return;
        }
        simulator.warp_barrier(all_lanes, 31);
        simulator.block_barrier(30);
      },
      {.warps = 2});
  expect_fault(report,
               {"divergence", "warp 0: lanes 0-31 wait at block_barrier at line 30",
                "warp 1: lanes 0-7, 9-31 wait at warp_barrier at line 31; lane 8 waits at block_barrier"});
}

TEST(Deadlock, AWarpExitsBeforeTheBarrier) {
  const Report report = run_body(
      [](const SimulatorInterface& simulator) {
        if (simulator.thread_index() < 32) return;
        simulator.block_barrier(40);
      },
      {.warps = 2});
  expect_fault(report,
               {"warp 1 lane 0, block_barrier at line 40", "deadlock", "warp 0: lanes 0-31 have exited",
                "warp 1: lanes 0-31 wait at block_barrier at line 40"});
}

TEST(Deadlock, WarpsDisagreeOnTheNumberOfBarriers) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Report report = run_body(
        [](const SimulatorInterface& simulator) {
          const int rounds = simulator.thread_index() < 64 ? 3 : 4;
          for (int i = 0; i < rounds; ++i) simulator.block_barrier(50);
        },
        {.warps = 4, .seed = seed});
    expect_fault(report,
                 {"deadlock", "warp 0: lanes 0-31 have exited", "warp 3: lanes 0-31 wait at block_barrier"});
  }
}

TEST(BlockBarrier, DifferentBarriersDoNotMatch) {
  const Report report = run_body(
      [](const SimulatorInterface& simulator) {
        if (simulator.thread_index() < 32) {
          simulator.block_barrier(60);
        } else {
          simulator.block_barrier(61);
        }
      },
      {.warps = 2});
  expect_fault(report, {"mismatched barriers", "line 60", "line 61"});
}

TEST(BlockBarrier, HoldsEverybodyBack) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    int arrived = 0;
    const Report report = run_body(
        [&](const SimulatorInterface& simulator) {
          for (int round = 1; round <= 3; ++round) {
            ++arrived;
            simulator.block_barrier(1);
            EXPECT_EQ(arrived, 96 * round);
            simulator.block_barrier(2);
          }
        },
        {.warps = 3, .seed = seed});
    expect_ok(report);
    EXPECT_EQ(report.barriers, 6);
    EXPECT_GT(report.switches, 0);
  }
}

TEST(WarpBarrier, PartialMasksMeetApart) {
  std::string order;
  const Report report = run_body([&](const SimulatorInterface& simulator) {
    const unsigned lane = simulator.thread_index();
    if (lane % 4 != 0) return;
    for (int round = 0; round < 2; ++round) {
      order += 'a';
      simulator.warp_barrier(0x11111111, 1);
      order += 'b';
      simulator.warp_barrier(0x11111111, 2);
    }
  });
  expect_ok(report);
  EXPECT_EQ(order, "aaaaaaaabbbbbbbbaaaaaaaabbbbbbbb");
}

TEST(WarpBarrier, BadMasks) {
  expect_fault(run_body([](const SimulatorInterface& simulator) { simulator.warp_barrier(0xfe, 5); }),
               {"warp 0 lane 0, warp_barrier at line 5", "not in its own mask 0x000000fe"});
  expect_fault(run_body([](const SimulatorInterface& simulator) {
                 const bool odd = simulator.thread_index() % 2;
                 simulator.warp_barrier(odd ? all_lanes : 0x55555555, odd ? 6 : 7);
               }),
               {"line 6", "mask 0xffffffff overlaps with mask 0x55555555 of lane 0", "line 7"});
}

// --- crashes

void write_to(uintptr_t address) {
  volatile uintptr_t hidden = address;  // from the compiler, which would warn
  *reinterpret_cast<int*>(hidden) = 1;
}

int recurse(int depth) {
  volatile char frame[1024] = {};
  return depth == 0 ? frame[0] : recurse(depth - 1) + frame[1];
}

TEST(Crash, IsAReport) {
  struct Crash {
    void (*body)();
    const char* message;
  };
  const Crash crashes[] = {
      {[] { write_to(16); }, "crashed with SEGV at address 0x10"},
      {[] { recurse(1000); }, "its stack of 256 KiB is full"},
      {[] { __builtin_trap(); }, "crashed with ILL"},
      {[] {
         volatile int zero = 0;
         zero = 7 / zero;
       },
       "crashed with FPE"},
  };
  for (const Crash& crash : crashes) {
    expect_fault(run_body(
                     [&](const SimulatorInterface& simulator) {
                       simulator.block_barrier(1);
                       if (simulator.block_index() == 2 && simulator.thread_index() == 37) crash.body();
                     },
                     {.warps = 2, .grid = 4, .os_threads = 2}),
                 {"block 2, warp 1 lane 5: ", crash.message});
  }
}

TEST(CrashDeathTest, OthersKeepTheirHandlers) {
  EXPECT_EXIT(
      {
        struct sigaction action = {};
        action.sa_handler = [](int) { _exit(42); };
        sigaction(SIGSEGV, &action, nullptr);
        run_body([](const SimulatorInterface&) {});
        write_to(16);
      },
      testing::ExitedWithCode(42), "");
}

// --- blocks

TEST(Launch, EveryThreadOfEveryBlockRunsOnce) {
  std::atomic<int> count[5][64] = {};
  for (const int os_threads : {1, 2, 4}) {
    expect_ok(run_body(
        [&](const SimulatorInterface& simulator) {
          ++count[simulator.block_index()][simulator.thread_index()];
        },
        {.warps = 2, .grid = 5, .os_threads = os_threads}));
  }
  for (auto& block : count) {
    for (auto& thread : block) EXPECT_EQ(thread, 3);
  }
}

TEST(Launch, TheLowestFaultyBlockIsReported) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Report report = run_body(
        [](const SimulatorInterface& simulator) {
          for (int i = 0; i < 10; ++i) simulator.block_barrier(1);
          if (simulator.block_index() >= 3) simulator.shuffle_xor(0, 99, 2);
        },
        {.grid = 40, .os_threads = 4});
    expect_fault(report, {"kernel test_kernel, block 3, "});
  }
}

TEST(Launch, EqualSeedsGiveEqualOrder) {
  const auto order = [](uint64_t seed) {
    std::string warps;
    run_body(
        [&](const SimulatorInterface& simulator) {
          for (int i = 0; i < 5; ++i) {
            if (simulator.thread_index() % 32 == 0)
              warps += static_cast<char>('a' + simulator.thread_index() / 32);
            simulator.block_barrier(1);
          }
        },
        {.warps = 8, .seed = seed});
    return warps;
  };
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(order(seed), order(seed));
    seen.insert(order(seed));
  }
  EXPECT_GT(seen.size(), 4u) << "the seed must change the order of warps";
}

TEST(Launch, BadShapes) {
  const auto nothing = [](const SimulatorInterface&) {};
  expect_fault(run_body(nothing, {.warps = 0}),
               {"0 threads per block, expected a multiple of 32 up to 1024"});
  expect_fault(run_body(nothing, {.warps = 33}), {"1056 threads per block"});
  expect_fault(run_body(nothing, {.grid = -1}), {"a grid of -1 blocks"});
  expect_fault(run_body(nothing, {.shared_memory = -4}), {"-4 bytes of shared memory"});
  expect_fault(run({.kernel_name = "k", .grid = 1, .threads = 32}), {"kernel k: the kernel's code lacks"});
  expect_ok(run_body(nothing, {.grid = 0}));
  expect_ok(run_body(nothing, {.warps = 32, .shared_memory = 0}));
}

TEST(Report, ShowsTheSourceLines) {
  const Report report = {.ok = false, .message = "wrong", .line = 2, .other_line = 4};
  EXPECT_EQ(with_source_line(report, "one\n  two();\nthree\nfour\n"),
            "wrong\n  line 2: two();\n  line 4: four");
  EXPECT_EQ(with_source_line({.ok = false, .message = "wrong", .line = 9}, "one\n"), "wrong");
}

TEST(Report, NamesLanes) {
  EXPECT_EQ(describe_lanes(0xffffffff), "lanes 0-31");
  EXPECT_EQ(describe_lanes(1u << 7), "lane 7");
  EXPECT_EQ(describe_lanes(0x8000000b), "lanes 0-1, 3, 31");
}

}  // namespace
}  // namespace tilewright::simulator
