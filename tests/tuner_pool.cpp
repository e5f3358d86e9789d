// Several GPUs side by side: jobs go to whoever is free, the outcome is the same whoever took them, and a
// dead worker costs the job at hand.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "codegen/timing_shape.h"
#include "runtime/tuning_records.h"
#include "tests/support/runtime_support.h"
#include "tests/support/simulated_gpu.h"
#include "tuner/message.h"
#include "tuner/worker_pool.h"

namespace tilewright {
namespace {

using test::hopper;
using test::TemporaryDirectory;

std::vector<AttentionSpec> specs() {
  std::vector<AttentionSpec> list;
  for (const char* text : {"head_dim: 64", "{head_dim: 64, mask: causal}", "{head_dim: 128, mask: causal}",
                           "{head_dim: 96, gqa_ratio: 2}", "{head_dim: 256, mask: causal}"})
    list.push_back(parse_spec(text, "spec"));
  return list;
}

GpuModel model() {
  return {"Simulated GPU", "sm_90a", 132, 1, 1};
}

/// Tunes on a clock of its own: some schedule of each spec is a tenth faster than the model says.
RecordFile tuned_records(const AttentionSpec& spec, uint64_t seed) {
  const auto times = [](const Schedule& schedule, double predicted) {
    return schedule.block_n % 48 == 0 ? 0.8 * predicted : predicted;
  };
  TuneOptions options;
  options.candidates = 6;
  options.buckets = {&long_bucket()};
  const TunedSpec tuned =
      tune(spec, hopper(), typical_gpu(hopper()), test::parts_of(spec, times, {}, seed), options);
  const TunedBucket& bucket = tuned.buckets.front();
  const auto measured = [&](size_t place) {
    return MeasuredSchedule{tuned.candidates[bucket.candidates[place]].schedule, 100, 1};
  };
  RecordFile file{.gpu = model()};
  file.records.push_back({.spec = record_key(spec),
                          .bucket = std::string(bucket.bucket->name),
                          .shape = bucket.shape,
                          .best = measured(static_cast<size_t>(bucket.selection.winner)),
                          .usual = measured(0),
                          .gain = 0.1,
                          .margin = 0.01,
                          .date = "2026-12-01"});
  return file;
}

struct Outcome {
  std::string file;          // the records
  std::vector<int> jobs_of;  // how many jobs each worker finished
  std::vector<size_t> lost, left_out;
};

/// What happens to a worker when it gets a job.
using Fate = std::function<void(int worker, size_t job)>;

Outcome tune_everything(int workers, std::deque<size_t> order, const Fate& fate = {},
                        const std::function<bool(size_t)>& wanted = {}) {
  TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "simulated.yaml";
  const std::vector<AttentionSpec> list = specs();
  WorkerPool pool;
  const int queue = pool.add_queue(std::move(order));
  for (int i = 0; i < workers; ++i)
    pool.add_worker(queue, [&, i](Channel& channel) {
      while (const auto request = channel.receive()) {
        const auto job = static_cast<size_t>(MessageReader(*request).integer());
        channel.send("progress");
        if (fate) fate(i, job);
        // Another GPU's clock has other noise.
        channel.send(record_text(tuned_records(list[job], static_cast<uint64_t>(100 * i + 1))));
      }
    });
  EXPECT_EQ(pool.workers_of(queue), workers);
  Outcome outcome{.jobs_of = std::vector<int>(static_cast<size_t>(workers))};
  pool.run({.request = [&](int, size_t job, size_t) -> std::optional<std::string> {
              if (!wanted || wanted(job)) return MessageWriter().put(static_cast<int64_t>(job)).bytes();
              outcome.left_out.push_back(job);
              return std::nullopt;
            },
            .hear =
                [&](int worker, size_t, const std::string& message) {
                  if (message == "progress") return false;
                  merge_records(file, model(), parse_records(message, file).records);
                  ++outcome.jobs_of[static_cast<size_t>(worker)];
                  return true;
                },
            .lost =
                [&](int, size_t job, const std::string& end) {
                  EXPECT_EQ(end, "was killed by signal 9 (Killed)");
                  outcome.lost.push_back(job);
                },
            .go_on = [] { return true; }});
  if (std::filesystem::exists(file)) outcome.file = test::read_text(file);
  return outcome;
}

void sleep_for(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(WorkerPool, RecordsAreTheSameWhoeverTookTheJobs) {
  const Outcome alone = tune_everything(1, {0, 1, 2, 3, 4});
  EXPECT_EQ(alone.jobs_of, std::vector<int>{5});
  for (const AttentionSpec& spec : specs())
    EXPECT_NE(alone.file.find("head_dim: " + std::to_string(spec.head_dim.qk)), std::string::npos);
  // The second GPU is slow with its first job: the other one does the rest.
  const Outcome two = tune_everything(2, {4, 2, 0, 1, 3}, [](int worker, size_t) {
    if (worker == 1) sleep_for(1500);
  });
  EXPECT_EQ(two.jobs_of[0] + two.jobs_of[1], 5);
  EXPECT_GE(two.jobs_of[1], 1) << "both have work";
  EXPECT_GT(two.jobs_of[0], two.jobs_of[1]) << "who is free takes the next one";
  EXPECT_EQ(two.file, alone.file);
}

TEST(WorkerPool, ADeadWorkerCostsTheJobAtHand) {
  const auto dies = [](int, size_t job) {
    if (job == 1 || job == 2) raise(SIGKILL);
  };
  for (int workers : {1, 2, 3}) {
    Outcome outcome = tune_everything(workers, {0, 1, 2, 3, 4}, dies);
    std::sort(outcome.lost.begin(), outcome.lost.end());
    EXPECT_EQ(outcome.lost, (std::vector<size_t>{1, 2})) << workers;
    int finished = 0;
    for (int jobs : outcome.jobs_of) finished += jobs;
    EXPECT_EQ(finished, 3) << "with " << workers << " workers, though every one may have died";
  }
  const Outcome none = tune_everything(2, {0, 1, 2}, [](int, size_t) { raise(SIGKILL); });
  EXPECT_EQ(none.lost.size(), 3u);
  EXPECT_EQ(none.file, "");
}

TEST(WorkerPool, WhatTheRequestLeavesOutIsNotAsked) {
  const Outcome outcome =
      tune_everything(2, {0, 1, 2, 3, 4}, {}, [](size_t job) { return job == 0 || job == 3; });
  EXPECT_EQ(outcome.left_out, (std::vector<size_t>{1, 2, 4}));
  EXPECT_EQ(outcome.jobs_of[0] + outcome.jobs_of[1], 2);
}

TEST(WorkerPool, QueuesKeepTheirOwnWorkers) {
  WorkerPool pool;
  const int first = pool.add_queue({10, 11, 12}), second = pool.add_queue({20, 21});
  const auto echo = [](Channel& channel) {
    while (auto request = channel.receive()) channel.send(*request);
  };
  pool.add_worker(first, echo);
  pool.add_worker(second, echo);
  std::vector<std::vector<size_t>> done(2);
  pool.run({.request = [](int, size_t job, size_t) { return std::to_string(job); },
            .hear =
                [&](int worker, size_t job, const std::string& message) {
                  EXPECT_EQ(message, std::to_string(job));
                  done[static_cast<size_t>(worker)].push_back(job);
                  return true;
                },
            .lost = [](int, size_t, const std::string&) { FAIL(); },
            .go_on = [] { return true; }});
  EXPECT_EQ(done[0], (std::vector<size_t>{10, 11, 12}));
  EXPECT_EQ(done[1], (std::vector<size_t>{20, 21}));
}

TEST(WorkerPool, EndsWhenTold) {
  WorkerPool pool;
  pool.add_worker(pool.add_queue({0, 1}), [](Channel&) { pause(); });
  const auto begin = std::chrono::steady_clock::now();
  pool.run(
      {.request = [](int, size_t, size_t) { return std::string(); },
       .hear = [](int, size_t, const std::string&) { return true; },
       .lost = [](int, size_t, const std::string&) { FAIL(); },
       .go_on = [&] { return std::chrono::steady_clock::now() < begin + std::chrono::milliseconds(20); }});
  SUCCEED() << "and its process is gone with it";
}

}  // namespace
}  // namespace tilewright
