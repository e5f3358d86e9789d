#include "tuner/parallel_compile.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <list>
#include <sstream>

#include "codegen/error.h"
#include "runtime/build.h"
#include "tuner/child_process.h"
#include "tuner/message.h"

namespace tilewright {
namespace {

// What NVRTC takes for a large kernel, with room; and what is left for everybody else.
constexpr int64_t bytes_a_compile = int64_t{512} << 20, bytes_left_alone = int64_t{1} << 30;
// The largest kernels take about two seconds.
constexpr double seconds_a_compile = 120;

void write_report(MessageWriter& message, const CompileReport& report) {
  message.put(report.compiler).put(report.command).put(report.milliseconds).put(report.registers);
  message.put(report.spill_bytes).put(report.shared_memory);
  message.put(static_cast<int64_t>(report.notes.size()));
  for (const std::string& note : report.notes) message.put(note);
}

CompileReport read_report(MessageReader& message) {
  CompileReport report;
  report.compiler = message.text();
  report.command = message.text();
  report.milliseconds = message.real();
  report.registers = message.small_integer();
  report.spill_bytes = message.small_integer();
  report.shared_memory = message.small_integer();
  for (int64_t count = message.integer(); count > 0; --count) report.notes.push_back(message.text());
  return report;
}

void compile_in_child(Channel& channel, const CompileJob& job, const Target& target, bool as_ptx,
                      const RuntimeOptions& options) {
  MessageWriter message;
  try {
    KernelCache cache(cache_options(options));
    const Source source = emit(job.spec, job.schedule, target, Backend::device);
    const auto entry = build_kernel(cache, job.spec, job.schedule, source, target, as_ptx);
    message.put("");
    write_report(message, entry->compiled.report);
  } catch (const std::exception& error) {
    message = {};
    message.put(error.what());
  }
  channel.send(message.bytes());
}

struct Running {
  size_t job;
  ChildProcess child;
  std::chrono::steady_clock::time_point started;
};

CompileOutcome outcome_of(Running& running) {
  CompileOutcome outcome;
  const auto reply = running.child.channel().receive(0);
  if (!reply) {
    const std::string end = running.child.stop();
    outcome.failure = "its compile " + (end.empty() ? "ended without an answer" : end);
    return outcome;
  }
  running.child.wait();
  MessageReader message(*reply);
  outcome.failure = message.text();
  if (outcome.failure.empty()) outcome.report = read_report(message);
  return outcome;
}

// Waits until one of them has an answer, has ended or has taken too long.
std::list<Running>::iterator next_done(std::list<Running>& running) {
  for (;;) {
    std::vector<pollfd> requests;
    for (Running& one : running) requests.push_back({one.child.channel().descriptor(), POLLIN, 0});
    poll(requests.data(), requests.size(), 1000);
    const auto now = std::chrono::steady_clock::now();
    size_t i = 0;
    for (auto one = running.begin(); one != running.end(); ++one, ++i)
      if (requests[i].revents ||
          std::chrono::duration<double>(now - one->started).count() > seconds_a_compile)
        return one;
  }
}

int64_t first_number(const std::string& file) {
  std::ifstream stream(file);
  int64_t value = -1;
  return stream >> value ? value : -1;
}

}  // namespace

int compiles_at_once(int cores, int64_t available_bytes) {
  if (available_bytes < 0) return std::max(1, cores);
  const int64_t fit = (available_bytes - bytes_left_alone) / bytes_a_compile;
  return static_cast<int>(std::clamp<int64_t>(fit, 1, std::max(1, cores)));
}

int64_t available_memory() {
  int64_t available = -1;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);)
    if (line.rfind("MemAvailable:", 0) == 0) available = std::stoll(line.substr(13)) * 1024;
  // "max" reads as no number: there is no limit then.
  const int64_t limit = first_number("/sys/fs/cgroup/memory.max");
  const int64_t used = first_number("/sys/fs/cgroup/memory.current");
  if (limit >= 0 && used >= 0) {
    const int64_t rest = std::max<int64_t>(0, limit - used);
    available = available < 0 ? rest : std::min(available, rest);
  }
  return available;
}

std::vector<CompileOutcome> compile_all(const std::vector<CompileJob>& jobs, const Target& target,
                                        bool as_ptx, const RuntimeOptions& options, int at_once,
                                        const std::function<void(size_t)>& done) {
  std::vector<CompileOutcome> outcomes(jobs.size());
  std::list<Running> running;
  for (size_t next = 0; next < jobs.size() || !running.empty();) {
    if (next < jobs.size() && static_cast<int>(running.size()) < std::max(1, at_once)) {
      const CompileJob& job = jobs[next];
      running.push_back({next++, ChildProcess([&](Channel& channel) {
                           compile_in_child(channel, job, target, as_ptx, options);
                         }),
                         std::chrono::steady_clock::now()});
      continue;
    }
    const auto finished = next_done(running);
    outcomes[finished->job] = outcome_of(*finished);
    if (done) done(finished->job);
    running.erase(finished);
  }
  return outcomes;
}

}  // namespace tilewright
