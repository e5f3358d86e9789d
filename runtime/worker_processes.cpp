#include "runtime/worker_processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "codegen/error.h"

namespace tilewright {
namespace {

using Clock = std::chrono::steady_clock;

bool send_all(int descriptor, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = send(descriptor, at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int descriptor, void* data, size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = recv(descriptor, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

/// The child's part: answers pieces of work until the parent closes its end.
[[noreturn]] void serve(int descriptor, const std::function<std::string(size_t)>& work) {
  for (uint64_t piece = 0; receive_all(descriptor, &piece, sizeof piece);) {
    std::string answer;
    try {
      answer = work(piece);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "tilewright: error: %s\n", error.what());
      _exit(1);
    }
    const uint64_t size = answer.size();
    if (!send_all(descriptor, &size, sizeof size) || !send_all(descriptor, answer.data(), answer.size()))
      break;
  }
  _exit(0);  // no destructors: they are the parent's
}

class Worker {
 public:
  Worker(const std::function<std::string(size_t)>& work, const std::vector<Worker>& others) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail();
    std::fflush(nullptr);  // else the child would write it a second time
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ < 0) {
      close(ends[0]);
      close(ends[1]);
      fail();
    }
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      close(ends[0]);
      // Inherited; while a copy is open here, the other child does not see that the parent has closed its
      // end.
      for (const Worker& other : others) close(other.descriptor_);
      serve(ends[1], work);
    }
    close(ends[1]);
    descriptor_ = ends[0];
  }
  ~Worker() {
    if (descriptor_ >= 0) close(descriptor_);
    if (process_ > 0) wait();
  }
  Worker(Worker&& other) noexcept
      : piece(other.piece),
        busy(other.busy),
        started_(other.started_),
        process_(std::exchange(other.process_, -1)),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  Worker& operator=(Worker&& other) noexcept {
    std::swap(piece, other.piece);
    std::swap(busy, other.busy);
    std::swap(started_, other.started_);
    std::swap(process_, other.process_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  int descriptor() const { return descriptor_; }

  void start(size_t next) {
    piece = next;
    busy = true;
    started_ = Clock::now();
    const uint64_t number = next;
    send_all(descriptor_, &number, sizeof number);  // a child that is gone shows when its answer is read
  }

  bool is_late(double seconds) const {
    return busy && std::chrono::duration<double>(Clock::now() - started_).count() > seconds;
  }

  WorkResult stop(double seconds) {
    busy = false;
    kill(process_, SIGKILL);
    wait();
    return {"", "it took longer than " + std::to_string(static_cast<int>(seconds)) + " s"};
  }

  WorkResult finish() {
    busy = false;
    WorkResult result;
    uint64_t size = 0;
    bool whole = receive_all(descriptor_, &size, sizeof size);
    if (whole) {
      result.answer.resize(size);
      whole = receive_all(descriptor_, result.answer.data(), size);
    }
    if (whole) return result;
    return {"", wait()};
  }
  bool alive() const { return process_ > 0; }

  size_t piece = 0;
  bool busy = false;

 private:
  [[noreturn]] static void fail() {
    throw Error(ErrorKind::environment,
                std::string("cannot start a worker process: ") + std::strerror(errno));
  }

  /// How the child ended.
  std::string wait() {
    int status = 0;
    while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    if (WIFSIGNALED(status))
      return "its process was ended by signal " + std::to_string(WTERMSIG(status)) + " (" +
             strsignal(WTERMSIG(status)) + ")";
    return "its process ended with status " + std::to_string(WEXITSTATUS(status));
  }

  Clock::time_point started_;
  pid_t process_ = -1;
  int descriptor_ = -1;
};

}  // namespace

void share_out(size_t count, size_t processes, double seconds, const std::function<std::string(size_t)>& work,
               const std::function<void(size_t, WorkResult)>& done) {
  std::vector<Worker> workers;
  size_t next = 0, finished = 0;
  while (finished < count) {
    while (next < count && workers.size() < processes) {
      Worker worker(work, workers);
      worker.start(next++);
      workers.push_back(std::move(worker));
    }
    std::vector<pollfd> polled;
    for (const Worker& worker : workers) polled.push_back({worker.descriptor(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), 1000) < 0 &&
        errno != EINTR)  // now and then, for those that are late
      throw Error(ErrorKind::internal,
                  std::string("cannot wait for worker processes: ") + std::strerror(errno));
    for (size_t i = workers.size(); i-- > 0;) {
      Worker& worker = workers[i];
      const bool answered = polled[i].revents != 0 && worker.busy;
      if (!answered && !worker.is_late(seconds)) continue;
      const size_t piece = worker.piece;
      WorkResult result = answered ? worker.finish() : worker.stop(seconds);
      ++finished;
      if (!worker.alive())
        workers.erase(workers.begin() + static_cast<std::ptrdiff_t>(i));
      else if (next < count)
        worker.start(next++);
      done(piece, std::move(result));
    }
  }
}

}  // namespace tilewright
