// Child processes of the tuner: what crashes, hangs or lies costs itself alone.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "codegen/error.h"
#include "runtime/compile_limits.h"
#include "tests/support/runtime_support.h"
#include "tuner/bench_process.h"
#include "tuner/message.h"

namespace tilewright {
namespace {

using test::TemporaryDirectory;

TEST(ChildProcess, CarriesWholeMessages) {
  ChildProcess child([](Channel& channel) {
    while (auto message = channel.receive()) channel.send(*message + *message);
  });
  const std::string large(300000, 'x');
  for (const std::string& text : {std::string("a"), std::string(), large}) {
    ASSERT_TRUE(child.channel().send(text));
    EXPECT_EQ(child.channel().receive(20), text + text);
  }
}

TEST(ChildProcess, SaysHowItEnded) {
  ChildProcess crash([](Channel&) { raise(SIGSEGV); });
  EXPECT_EQ(crash.channel().receive(20), std::nullopt);
  EXPECT_EQ(crash.wait(), "was killed by signal 11 (Segmentation fault)");
  ChildProcess failure([](Channel&) { _exit(7); });
  EXPECT_EQ(failure.wait(), "ended with status 7");
  ChildProcess fine([](Channel&) {});
  EXPECT_EQ(fine.wait(), "");
  ChildProcess hung([](Channel&) { pause(); });
  EXPECT_EQ(hung.channel().receive(0.05), std::nullopt);
  EXPECT_EQ(hung.stop(), "was killed by signal 9 (Killed)");
  EXPECT_FALSE(hung.channel().send("anybody?"));
}

TEST(Message, EndsWithAnErrorWhereItIsTooShort) {
  const std::string bytes = MessageWriter().put(3).put("text").put(0.5).bytes();
  MessageReader reader(bytes);
  EXPECT_EQ(reader.integer(), 3);
  EXPECT_EQ(reader.text(), "text");
  EXPECT_EQ(reader.real(), 0.5);
  EXPECT_THROW(reader.integer(), Error);
}

/// Candidate 1 is wrong, 2 crashes when it is checked, 3 when it is timed, 4 hangs.
class BadCompany final : public Bench {
 public:
  std::string refuse(int candidate) override {
    if (candidate == 1) return "out[0, 0, 0, 0] is nan, expected 0.5";
    if (candidate == 2) raise(SIGSEGV);
    return "";
  }
  void use_shape(const LaunchShape& shape) override { shape_ = shape; }
  std::vector<Sample> round(const std::vector<int>& order) override {
    std::vector<Sample> samples;
    for (int candidate : order) {
      if (candidate == 3) throw Error(ErrorKind::device, "an illegal address was touched");
      if (candidate == 4) pause();
      samples.push_back({.microseconds = static_cast<double>(shape_.seqlen_q + candidate)});
    }
    return samples;
  }

 private:
  LaunchShape shape_;
};

TEST(BenchProcess, ABadCandidateCostsItselfAlone) {
  BenchProcess bench([] { return std::make_unique<BadCompany>(); }, {.round_seconds = 0.6});
  bench.use_shape({1, 1, 100, 100});
  EXPECT_EQ(bench.refuse(0), "");
  EXPECT_EQ(bench.refuse(1), "out[0, 0, 0, 0] is nan, expected 0.5");
  EXPECT_EQ(bench.refuse(2), "its process was killed by signal 11 (Segmentation fault)");
  EXPECT_EQ(bench.refuse(3), "");
  EXPECT_EQ(bench.refuse(4), "");
  EXPECT_EQ(bench.refuse(5), "");
  std::vector<Sample> samples = bench.round({5, 3, 0});
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].microseconds, 105) << "shape and candidates are there again after a restart";
  EXPECT_EQ(samples[1].failure, "its launch failed: an illegal address was touched");
  EXPECT_EQ(samples[2].microseconds, 100);
  samples = bench.round({4, 0});
  EXPECT_EQ(samples[0].failure, "its launch failed: did not end within 1 s");
  EXPECT_EQ(samples[1].microseconds, 100);
  samples = bench.round({0, 5});
  EXPECT_EQ(samples[1].microseconds, 105);
}

TEST(BenchProcess, OneThatCannotStartIsAnError) {
  BenchProcess bench([]() -> std::unique_ptr<Bench> { throw Error(ErrorKind::environment, "no such GPU"); });
  try {
    bench.refuse(0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no such GPU"), std::string::npos);
  }
}

// Case J6.
TEST(ParallelCompile, BoundedByMemory) {
  constexpr int64_t gib = int64_t{1} << 30;
  EXPECT_EQ(compiles_at_once(64, 8 * gib), 14);
  EXPECT_EQ(compiles_at_once(64, 256 * gib), 64);
  EXPECT_EQ(compiles_at_once(2, 8 * gib), 2);
  EXPECT_EQ(compiles_at_once(64, gib / 4), 1);
  EXPECT_EQ(compiles_at_once(16, -1), 16);
  EXPECT_EQ(compiles_at_once(0, -1), 1);
  EXPECT_GT(available_memory(), 0);
}

}  // namespace
}  // namespace tilewright
