// The cache between processes: one compile, killed holders, slow holders.
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "runtime/build.h"
#include "runtime/cache.h"
#include "runtime/file_lock.h"
#include "runtime/nvrtc.h"
#include "tests/support/runtime_support.h"

namespace tilewright {
namespace {

using test::ScopedEnvironment;
using test::TemporaryDirectory;

const char* const fake_nvrtc = TILEWRIGHT_BINARY_DIR "/fakes/fake_nvrtc.so";

class Processes : public testing::Test {
 protected:
  /// Builds one kernel with the fake compiler; 0 if the image is right.
  int build(double lock_seconds = 60) const {
    KernelCache cache({.directory = directory_ / "cache", .lock_seconds = lock_seconds});
    auto compiler = make_nvrtc_compiler(fake_nvrtc);
    const AttentionSpec spec = parse_spec("head_dim: 64", "spec");
    const Target& target = target_by_name("sm_80");
    const Schedule schedule = choose_schedule(spec, target);
    auto entry = build_kernel_with(compiler.get(), "", cache, spec, schedule,
                                   emit(spec, schedule, target, Backend::device), target, false);
    return entry->compiled.image.starts_with("image of --gpu-architecture=sm_80") ? 0 : 1;
  }

  int compiles() const { return test::count_lines(directory_ / "count"); }

  void wait_for_first_compile() const {
    while (compiles() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  TemporaryDirectory directory_;
  ScopedEnvironment count_{"FAKE_NVRTC_COUNT", (directory_ / "count").string()};
};

// Case H1.
TEST_F(Processes, EightAtOnceCompileOnce) {
  ScopedEnvironment slow("FAKE_NVRTC_SLEEP", "0.2");
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i)
    children.push_back(test::start_child([&] {
      char byte;
      close(gate[1]);
      if (read(gate[0], &byte, 1) != 0) return 9;  // returns when the parent closes its end
      return build();
    }));
  close(gate[0]);
  close(gate[1]);
  for (pid_t child : children) EXPECT_EQ(test::wait_for(child), 0);
  EXPECT_EQ(compiles(), 1);
  EXPECT_EQ(test::files_below(directory_ / "cache").size(), 1u);
}

// Case H2: the compiling process is killed.
TEST_F(Processes, KilledHolderLeavesNothingInTheWay) {
  pid_t holder;
  {
    ScopedEnvironment slow("FAKE_NVRTC_SLEEP", "600");
    holder = test::start_child([&] { return build(); });
  }
  wait_for_first_compile();
  kill(holder, SIGKILL);
  EXPECT_EQ(test::wait_for(holder), 1000 + SIGKILL);
  EXPECT_EQ(build(), 0);
  EXPECT_EQ(compiles(), 2);
}

// Case H2: the holder takes longer than the limit.
TEST_F(Processes, SlowHolderDoesNotStopTheOthers) {
  pid_t holder;
  {
    ScopedEnvironment slow("FAKE_NVRTC_SLEEP", "600");
    holder = test::start_child([&] { return build(); });
  }
  wait_for_first_compile();
  EXPECT_EQ(build(/*lock_seconds=*/0.05), 0);
  EXPECT_EQ(compiles(), 2);
  kill(holder, SIGKILL);
  test::wait_for(holder);
}

TEST_F(Processes, LeftoversOfKilledWritersGo) {
  ASSERT_EQ(build(), 0);
  const auto entry = test::files_below(directory_ / "cache").at(0);
  test::write_text(entry.string() + ".tmp-1-0", "half of an ent");
  std::filesystem::remove(entry);
  ASSERT_EQ(build(), 0);
  EXPECT_EQ(test::files_below(directory_ / "cache"), std::vector{entry});
}

TEST(FileLock, OneHolderAtATime) {
  TemporaryDirectory directory;
  const auto file = directory / "lock";
  {
    FileLock first(file, std::chrono::seconds(1));
    EXPECT_TRUE(first.held());
    FileLock second(file, std::chrono::milliseconds(10));
    EXPECT_FALSE(second.held());
    EXPECT_EQ(test::in_child([&] { return FileLock(file, std::chrono::milliseconds(10)).held() ? 1 : 0; }),
              0);
  }
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_TRUE(FileLock(file, std::chrono::seconds(0)).held());
  EXPECT_FALSE(FileLock(directory / "nowhere/lock", std::chrono::seconds(60)).held());
}

// The file is removed by each holder in turn: those who wait must not lock the removed one.
TEST(FileLock, ManyInTurn) {
  TemporaryDirectory directory;
  std::atomic<int> inside{0}, together{0}, held{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        FileLock lock(directory / "lock", std::chrono::seconds(60));
        held += lock.held();
        together += ++inside > 1;
        std::this_thread::yield();
        --inside;
      }
    });
  threads.clear();
  EXPECT_EQ(together, 0);
  EXPECT_EQ(held, 8 * 500);
}

}  // namespace
}  // namespace tilewright
