// Jobs shared out among worker processes: whoever is free takes the next one. A process that dies costs the
// job it had, and another takes its place.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tuner/child_process.h"

namespace tilewright {

class WorkerPool {
 public:
  /// Runs in a worker's process: receives requests, and sends messages until the job is done.
  using Body = std::function<void(Channel&)>;

  struct Handlers {
    /// What the worker is asked for this job, while `waiting` others are left in its queue. Nothing: the job
    /// is left out.
    std::function<std::optional<std::string>(int worker, size_t job, size_t waiting)> request;
    /// A message of the worker about its job. True: the job is done.
    std::function<bool(int worker, size_t job, const std::string& message)> hear;
    /// The worker's process ended before the job was done: "was killed by signal 9 (Killed)".
    std::function<void(int worker, size_t job, const std::string& end)> lost;
    /// Asked at least twice a second. False: everything ends at once.
    std::function<bool()> go_on;
  };

  /// A queue of jobs, taken from the front; the number it goes by.
  int add_queue(std::deque<size_t> jobs);
  /// A worker that takes jobs of this queue; the number it goes by.
  int add_worker(int queue, Body body);
  int workers_of(int queue) const;

  /// Returns when every job is done, left out or lost. The caller must have one thread (see ChildProcess).
  void run(const Handlers& handlers);

 private:
  struct Worker {
    int queue;
    Body body;
    std::optional<ChildProcess> process;
    std::optional<size_t> job;
  };

  void give_work(int number, const Handlers& handlers);
  void hear(int number, const Handlers& handlers);

  std::vector<std::deque<size_t>> queues_;
  std::vector<Worker> workers_;
};

}  // namespace tilewright
