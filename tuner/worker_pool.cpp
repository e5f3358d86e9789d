#include "tuner/worker_pool.h"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace tilewright {

int WorkerPool::add_queue(std::deque<size_t> jobs) {
  queues_.push_back(std::move(jobs));
  return static_cast<int>(queues_.size()) - 1;
}

int WorkerPool::add_worker(int queue, Body body) {
  workers_.push_back({queue, std::move(body), std::nullopt, std::nullopt});
  return static_cast<int>(workers_.size()) - 1;
}

int WorkerPool::workers_of(int queue) const {
  return static_cast<int>(
      std::count_if(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.queue == queue; }));
}

void WorkerPool::run(const Handlers& handlers) {
  for (size_t i = 0; i < workers_.size(); ++i) give_work(static_cast<int>(i), handlers);
  while (handlers.go_on()) {
    std::vector<pollfd> requests;
    std::vector<int> busy;
    for (size_t i = 0; i < workers_.size(); ++i)
      if (workers_[i].job) {
        requests.push_back({workers_[i].process->channel().descriptor(), POLLIN, 0});
        busy.push_back(static_cast<int>(i));
      }
    if (busy.empty()) break;
    if (poll(requests.data(), requests.size(), 500) < 0) continue;  // a signal: the caller may want to stop
    for (size_t i = 0; i < busy.size(); ++i)
      if (requests[i].revents) hear(busy[i], handlers);
  }
  for (Worker& worker : workers_) worker.process.reset();
}

void WorkerPool::give_work(int number, const Handlers& handlers) {
  Worker& worker = workers_[static_cast<size_t>(number)];
  std::deque<size_t>& jobs = queues_[static_cast<size_t>(worker.queue)];
  worker.job.reset();
  while (!jobs.empty()) {
    const size_t job = jobs.front();
    jobs.pop_front();
    const auto request = handlers.request(number, job, jobs.size());
    if (!request) continue;
    if (!worker.process) worker.process.emplace(worker.body);
    worker.job = job;
    worker.process->channel().send(*request);  // if it is dead already, the next look at its channel says so
    return;
  }
}

void WorkerPool::hear(int number, const Handlers& handlers) {
  Worker& worker = workers_[static_cast<size_t>(number)];
  // What has begun to arrive is whole within a minute, or its sender hangs.
  const auto message = worker.process->channel().receive(60);
  if (message) {
    if (handlers.hear(number, *worker.job, *message)) give_work(number, handlers);
    return;
  }
  const std::string end = worker.process->stop();
  worker.process.reset();
  handlers.lost(number, *worker.job, end.empty() ? "ended too early" : end);
  give_work(number, handlers);
}

}  // namespace tilewright
