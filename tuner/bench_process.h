// A bench in a child process: a candidate that crashes it or hangs costs itself alone.
#pragma once

#include <chrono>
#include <optional>

#include "tuner/bench.h"
#include "tuner/child_process.h"

namespace tilewright {

class BenchProcess final : public Stopwatch {
 public:
  struct Limits {
    double start_seconds = 60;  // to come up
    double check_seconds = 30;  // for one candidate's gate
    double round_seconds = 30;  // for a round
  };
  explicit BenchProcess(BenchFactory factory) : BenchProcess(std::move(factory), Limits()) {}
  BenchProcess(BenchFactory factory, const Limits& limits);

  /// See Bench::refuse; a crash or a hang is a reason too. Throws Error if the bench itself cannot start.
  std::string refuse(int candidate);
  void use_shape(const LaunchShape& shape);
  /// A candidate whose launch brings the process down has a sample with that failure; the others are run
  /// again in a new process.
  std::vector<Sample> round(const std::vector<int>& order) override;
  double seconds() override;

 private:
  struct Reply {
    std::optional<std::string> message;  // nothing: the process is gone
    std::string why;
  };
  void start();
  Reply ask(const std::string& request, double seconds);
  std::optional<std::vector<Sample>> try_round(const std::vector<int>& order, std::string& why);

  BenchFactory factory_;
  Limits limits_;
  std::optional<ChildProcess> child_;
  std::vector<int> loaded_;
  std::optional<LaunchShape> shape_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace tilewright
