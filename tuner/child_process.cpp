#include "tuner/child_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "codegen/error.h"

namespace tilewright {
namespace {

using Clock = std::chrono::steady_clock;

// Reads exactly `size` bytes unless the other end closes or the deadline passes.
bool read_all(int descriptor, char* data, size_t size, const std::optional<Clock::time_point>& deadline) {
  while (size > 0) {
    int wait = -1;
    if (deadline) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - Clock::now());
      wait = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
    }
    pollfd request{descriptor, POLLIN, 0};
    const int ready = poll(&request, 1, wait);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t got = read(descriptor, data, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

Channel::~Channel() {
  if (descriptor_ >= 0) close(descriptor_);
}

Channel::Channel(Channel&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

bool Channel::send(const std::string& message) {
  const uint64_t size = message.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += message;
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t sent = ::send(descriptor_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    done += static_cast<size_t>(sent);
  }
  return true;
}

std::optional<std::string> Channel::receive(double seconds) {
  std::optional<Clock::time_point> deadline;
  if (seconds >= 0)
    deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  uint64_t size = 0;
  if (!read_all(descriptor_, reinterpret_cast<char*>(&size), sizeof size, deadline)) return std::nullopt;
  std::string message(size, '\0');
  if (!read_all(descriptor_, message.data(), size, deadline)) return std::nullopt;
  return message;
}

ChildProcess::ChildProcess(const std::function<void(Channel&)>& body) : channel_(-1) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(ErrorKind::environment,
                std::string("cannot connect to a child process: ") + std::strerror(errno));
  std::fflush(nullptr);  // the child must not print what is still to be printed here
  process_ = fork();
  if (process_ < 0) {
    const int error = errno;
    close(ends[0]);
    close(ends[1]);
    throw Error(ErrorKind::environment, std::string("cannot start a process: ") + std::strerror(error));
  }
  if (process_ > 0) {
    close(ends[1]);
    std::construct_at(&channel_, ends[0]);
    return;
  }
  close(ends[0]);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGINT, SIG_IGN);
  int status = 0;
  try {
    Channel channel(ends[1]);
    body(channel);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tilewright: a child process failed: %s\n", error.what());
    status = 1;
  }
  std::fflush(nullptr);
  _exit(status);  // without the destructors of the parent's objects
}

ChildProcess::~ChildProcess() {
  if (process_ > 0) stop();
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : process_(std::exchange(other.process_, -1)), channel_(std::move(other.channel_)) {}

std::string ChildProcess::stop() {
  if (process_ <= 0) return {};
  kill(process_, SIGKILL);
  return wait();
}

std::string ChildProcess::wait() {
  if (process_ <= 0) return {};
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
  }
  const int code = WEXITSTATUS(status);
  return code == 0 ? "" : "ended with status " + std::to_string(code);
}

}  // namespace tilewright
