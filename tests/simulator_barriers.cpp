// mbarriers and named barriers against the PTX manual's rules (ISA 9.7.13.1, 9.7.13.15); register budgets
// (9.7.19.5).
#include <gtest/gtest.h>

#include "tests/simulator_support.h"

namespace tilewright::simulator {
namespace {

constexpr unsigned barrier = 64;

void store(const SimulatorInterface& simulator, unsigned address, uint32_t value, int site) {
  simulator.shared_store(address, &value, 4, site);
}

uint32_t load(const SimulatorInterface& simulator, unsigned address, int site) {
  uint32_t value;
  simulator.shared_load(&value, address, 4, site);
  return value;
}

/// Thread 0 sets the barrier up for the block.
void initialize(const SimulatorInterface& simulator, int arrivals) {
  if (simulator.thread_index() == 0) {
    simulator.barrier_initialize(barrier, arrivals, 1);
    simulator.fence_barrier_initialization(2);
  }
  simulator.block_barrier(3);
}

// --- mbarriers: phases

TEST(MemoryBarrier, AFreshOneIsPastParity1) {
  expect_ok(run_body([](const SimulatorInterface& simulator) {
    initialize(simulator, 1);
    simulator.barrier_wait(barrier, 1, 10);
  }));
  expect_fault(
      run_body([](const SimulatorInterface& simulator) {
        initialize(simulator, 1);
        simulator.barrier_wait(barrier, 0, 10);
      }),
      {"deadlock", "barrier_wait at line 10",
       "barrier at shared byte 64, initialised at line 1: phase 0 lacks 1 of 1 arrivals and 0 bytes"});
}

// Phase n has parity n % 2: each wait succeeds as soon as that phase is over, and no earlier.
TEST(MemoryBarrier, PhasesAlternate) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    expect_ok(run_body(
        [&](const SimulatorInterface& simulator) {
          const unsigned lane = simulator.thread_index() % 32;
          initialize(simulator, 32);
          for (uint32_t phase = 0; phase < 5; ++phase) {
            const unsigned row = 128 + 128 * (phase % 2);
            if (simulator.thread_index() < 32) {
              store(simulator, row + 4 * lane, phase, 10);
              simulator.barrier_arrive(barrier, 11);
            }
            simulator.barrier_wait(barrier, phase % 2, 12);
            wrong += load(simulator, row + 4 * (lane ^ 7), 13) != phase;
            simulator.block_barrier(14);
          }
        },
        {.warps = 2, .seed = seed}));
  }
  EXPECT_EQ(wrong, 0);
}

TEST(MemoryBarrier, OrdersWhatCameBeforeTheArrival) {
  const auto body = [](bool wait) {
    return [wait](const SimulatorInterface& simulator) {
      initialize(simulator, 1);
      if (simulator.thread_index() == 5) {
        store(simulator, 128, 7, 10);
        simulator.barrier_arrive(barrier, 11);
        store(simulator, 256, 7, 12);
      }
      if (simulator.thread_index() == 40) {
        if (wait) simulator.barrier_wait(barrier, 0, 13);
        load(simulator, 128, 14);
      }
    };
  };
  for (uint64_t seed = 0; seed < 8; ++seed) {
    expect_ok(run_body(body(true), {.warps = 2, .seed = seed}));
    EXPECT_FALSE(run_body(body(false), {.warps = 2, .seed = seed}).ok);
  }
}

TEST(MemoryBarrier, DoesNotOrderWhatCameAfterTheArrival) {
  const auto body = [](const SimulatorInterface& simulator) {
    initialize(simulator, 1);
    if (simulator.thread_index() == 5) {
      simulator.barrier_arrive(barrier, 11);
      store(simulator, 128, 7, 12);
    }
    if (simulator.thread_index() == 40) {
      simulator.barrier_wait(barrier, 0, 13);
      load(simulator, 128, 14);
    }
  };
  for (uint64_t seed = 0; seed < 8; ++seed) EXPECT_FALSE(run_body(body, {.warps = 2, .seed = seed}).ok);
}

// An arrival speaks for its lane, and for others only if they met before.
TEST(MemoryBarrier, AnArrivalSpeaksForItsLane) {
  const auto body = [](bool meet) {
    return [meet](const SimulatorInterface& simulator) {
      initialize(simulator, 1);
      const int thread = simulator.thread_index();
      if (thread < 32) {
        store(simulator, 128 + 4 * thread, 7, 10);
        if (meet) simulator.warp_barrier(~0u, 11);
        if (thread == 0) simulator.barrier_arrive(barrier, 12);
      } else {
        simulator.barrier_wait(barrier, 0, 13);
        load(simulator, 128 + 4 * (thread - 32), 14);
      }
    };
  };
  expect_ok(run_body(body(true), {.warps = 2}));
  expect_fault(run_body(body(false), {.warps = 2}), {"warp 1 lane", "the write by warp 0 lane"});
}

// Readers that arrive one by one, each for itself.
TEST(MemoryBarrier, EveryReaderMayArriveForItself) {
  const auto body = [](int missing) {
    return [missing](const SimulatorInterface& simulator) {
      const int thread = simulator.thread_index();
      if (thread == 32) store(simulator, 128, 1, 9);
      initialize(simulator, missing < 0 ? 32 : 31);
      if (thread < 32) {
        load(simulator, 128, 10);
        if (thread != missing) simulator.barrier_arrive(barrier, 11);
      } else if (thread == 32) {
        simulator.barrier_wait(barrier, 0, 12);
        store(simulator, 128, 2, 13);
      }
    };
  };
  for (uint64_t seed = 0; seed < 8; ++seed) {
    expect_ok(run_body(body(-1), {.warps = 2, .seed = seed}));
    EXPECT_FALSE(run_body(body(3), {.warps = 2, .seed = seed}).ok);
  }
}

// --- mbarriers: bytes

TEST(MemoryBarrier, APhaseWaitsForItsBytes) {
  expect_fault(run_body([](const SimulatorInterface& simulator) {
                 initialize(simulator, 1);
                 if (simulator.thread_index() == 0) simulator.barrier_arrive_expecting(barrier, 96, 10);
                 simulator.barrier_wait(barrier, 0, 11);
               }),
               {"deadlock", "phase 0 lacks 0 of 1 arrivals and 96 bytes"});
  expect_ok(run_body([](const SimulatorInterface& simulator) {
    initialize(simulator, 1);
    if (simulator.thread_index() == 0) simulator.barrier_arrive_expecting(barrier, 0, 10);
    simulator.barrier_wait(barrier, 0, 11);
  }));
}

// --- mbarriers: faults

struct Fault {
  const char* name;
  void (*body)(const SimulatorInterface& simulator);
  std::vector<std::string> parts;
  int warps = 1;
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

class BarrierFault : public testing::TestWithParam<Fault> {};

TEST_P(BarrierFault, IsReported) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Report report = run_body(GetParam().body, {.warps = GetParam().warps, .seed = seed});
    EXPECT_FALSE(report.ok) << "no fault found";
    for (const std::string& part : GetParam().parts) {
      EXPECT_NE(report.message.find(part), std::string::npos)
          << "\"" << part << "\" not in: " << report.message;
    }
  }
}

using Simulator = const SimulatorInterface&;

INSTANTIATE_TEST_SUITE_P(
    Hopper, BarrierFault,
    testing::Values(
        Fault{"uninitialised",
              [](Simulator s) { s.barrier_arrive(barrier, 10); },
              {"barrier_arrive at line 10", "no initialised barrier at shared byte 64"}},
        Fault{"too_many_arrivals",
              [](Simulator s) {
                initialize(s, 1);
                if (s.thread_index() != 0) return;
                s.barrier_arrive_expecting(barrier, 16, 10);
                s.barrier_arrive(barrier, 11);
              },
              {"too many arrivals", "barrier_arrive at line 11", "waits for 16 more bytes"}},
        Fault{"used_without_meeting_after_initialisation",
              [](Simulator s) {
                if (s.thread_index() == 0) s.barrier_initialize(barrier, 32, 10);
                s.shuffle_xor(0, 1, 11);
                s.barrier_arrive(barrier, 12);
              },
              {"race: the use of the barrier", "barrier_initialize at line 10"}},
        Fault{"misaligned", [](Simulator s) { s.barrier_initialize(68, 1, 10); }, {"misaligned: 8 bytes"}},
        Fault{"outside", [](Simulator s) { s.barrier_initialize(4096, 1, 10); }, {"out of bounds"}},
        Fault{"no_arrivals", [](Simulator s) { s.barrier_initialize(64, 0, 10); }, {"0 arrivals a phase"}},
        Fault{"initialised_twice",
              [](Simulator s) {
                if (s.thread_index() != 0) return;
                s.barrier_initialize(64, 1, 10);
                s.barrier_initialize(64, 1, 11);
              },
              {"line 11", "belong to the barrier at 64"}},
        Fault{"stored_over",
              [](Simulator s) {
                initialize(s, 1);
                if (s.thread_index() == 0) store(s, 68, 1, 10);
              },
              {"shared_store at line 10", "belong to the barrier at 64"}},
        Fault{"bad_parity",
              [](Simulator s) {
                initialize(s, 1);
                s.barrier_wait(barrier, 2, 10);
              },
              {"a parity of 2"}},
        Fault{"too_many_bytes",
              [](Simulator s) {
                initialize(s, 2);
                s.barrier_arrive_expecting(barrier, 1 << 20, 10);
              },
              {"1048576 bytes expected"}},
        Fault{"named_barrier_0",
              [](Simulator s) { s.named_barrier_wait(0, 32, 10); },
              {"barrier 0, expected 1 to 15"}},
        Fault{"named_barrier_16",
              [](Simulator s) { s.named_barrier_arrive(16, 32, 10); },
              {"barrier 16, expected 1 to 15"}},
        Fault{"named_barrier_of_half_a_warp",
              [](Simulator s) { s.named_barrier_wait(1, 48, 10); },
              {"among 48 threads", "a multiple of 32"}},
        Fault{"named_barrier_of_too_many",
              [](Simulator s) { s.named_barrier_wait(1, 64, 10); },
              {"among 64 threads", "the block's 32"}},
        Fault{"named_barrier_with_two_counts",
              [](Simulator s) { s.named_barrier_wait(1, s.thread_index() < 32 ? 64 : 96, 10); },
              {"mismatched counts"},
              3},
        Fault{"named_barrier_one_short",
              [](Simulator s) {
                if (s.thread_index() != 33) s.named_barrier_wait(1, 64, 10);
              },
              {"deadlock", "named_barrier_wait at line 10"},
              2}),
    [](const auto& fault) { return fault.param.name; });

// --- named barriers

TEST(NamedBarrier, OrdersItsThreadsAndNoOthers) {
  const auto body = [](int reader) {
    return [reader](const SimulatorInterface& simulator) {
      const int thread = simulator.thread_index();
      if (thread == 3) store(simulator, 0, 7, 10);
      if (thread < 64) simulator.named_barrier_wait(4, 64, 11);
      if (thread == reader) load(simulator, 0, 12);
    };
  };
  for (uint64_t seed = 0; seed < 8; ++seed) {
    expect_ok(run_body(body(50), {.warps = 3, .seed = seed}));
    EXPECT_FALSE(run_body(body(70), {.warps = 3, .seed = seed}).ok);
  }
}

// A hand-over: one warp arrives and goes on, the other waits. And round after round.
TEST(NamedBarrier, ArrivingDoesNotWait) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    expect_ok(run_body(
        [&](const SimulatorInterface& simulator) {
          const unsigned lane = simulator.thread_index() % 32;
          for (uint32_t round = 0; round < 4; ++round) {
            if (simulator.thread_index() < 32) {
              if (round > 0) simulator.named_barrier_wait(2, 64, 10);
              store(simulator, 4 * lane, round, 11);
              simulator.named_barrier_arrive(1, 64, 12);
            } else {
              simulator.named_barrier_wait(1, 64, 13);
              wrong += load(simulator, 4 * (lane ^ 9), 14) != round;
              if (round < 3) simulator.named_barrier_arrive(2, 64, 15);
            }
          }
        },
        {.warps = 2, .seed = seed}));
  }
  EXPECT_EQ(wrong, 0);
}

// --- registers

TEST(Registers, TakenAfterTheyWereReleased) {
  const auto body = [](int released, int taken) {
    return [=](const SimulatorInterface& simulator) {
      const bool releases = simulator.thread_index() < 128;
      simulator.set_registers(releases ? released : taken, !releases, 10);
    };
  };
  for (uint64_t seed = 0; seed < 8; ++seed) {  // 384 threads have 168 each
    expect_ok(run_body(body(40, 232), {.warps = 12, .seed = seed}));
    expect_fault(run_body(body(40, 240), {.warps = 12, .seed = seed}),
                 {"deadlock", "set_registers at line 10"});
    expect_fault(run_body(body(176, 176), {.warps = 12, .seed = seed}),
                 {"set_registers at line 10", "from 168"});
  }
}

TEST(Registers, CountsAndWarpgroups) {
  const auto body = [](int count, int warps) {
    return run_body([=](const SimulatorInterface& simulator) { simulator.set_registers(count, 0, 10); },
                    {.warps = warps});
  };
  expect_ok(body(24, 8));
  expect_fault(body(16, 8), {"16 registers, expected a multiple of 8 from 24 to 256"});
  expect_fault(body(44, 8), {"44 registers"});
  expect_fault(body(24, 6), {"belongs to no warpgroup"});
  expect_fault(run_body(
                   [](const SimulatorInterface& simulator) {
                     if (simulator.thread_index() < 96) simulator.set_registers(24, 0, 10);
                   },
                   {.warps = 4}),
               {"warps 0 to 3 are a warpgroup"});
}

// --- the rest

TEST(Uniform, IsTheLargestOfTheWarp) {
  int found = 0;
  expect_ok(run_body([&](const SimulatorInterface& simulator) {
    const int lane = simulator.thread_index();
    const int value = simulator.uniform(lane == 9 ? -3 : -100 - lane, 10);
    if (lane == 31) found = value;
  }));
  EXPECT_EQ(found, -3);
}

TEST(GlobalAdd, IsAtomicAcrossBlocks) {
  int counters[2] = {};
  std::vector<Buffer> buffers = {
      {.data = counters, .bytes = sizeof counters, .name = "counters", .writable = true, .counters = true}};
  expect_ok(run_body(
      [&](const SimulatorInterface& simulator) {
        for (int i = 0; i < 100; ++i) simulator.global_add(counters, 1, 10);
        if (simulator.global_add(counters + 1, 1, 11) == simulator.grid_blocks() * 32 - 1) {
          const int zero = 0;
          simulator.global_store(counters + 1, &zero, 4, 12);
        }
      },
      {.grid = 40, .buffers = buffers, .os_threads = 4}));
  EXPECT_EQ(counters[0], 40 * 32 * 100);
  EXPECT_EQ(counters[1], 0);
}

TEST(GlobalAdd, CountersOnly) {
  int values[2] = {};
  const auto body = [&](const SimulatorInterface& simulator) { simulator.global_add(values, 1, 10); };
  const auto buffer = [&](bool writable) {
    return std::vector<Buffer>{
        {.data = values, .bytes = sizeof values, .name = "values", .writable = writable}};
  };
  expect_fault(run_body(body, {.buffers = buffer(true)}), {"\"values\", which does not hold counters"});
  expect_fault(run_body(body, {.buffers = buffer(false)}), {"\"values\", which the kernel may only read"});
  expect_fault(run_body(body), {"global_add at line 10", "no global memory"});
}

}  // namespace
}  // namespace tilewright::simulator
