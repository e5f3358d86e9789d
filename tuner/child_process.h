// A child process that runs a function of this program: what goes wrong in it (an illegal access, a hang, too
// much memory) is not this process's end. The caller must have one thread and must not have used the CUDA
// driver.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

namespace tilewright {

/// One end of a two-way connection that carries whole messages.
class Channel {
 public:
  explicit Channel(int descriptor) : descriptor_(descriptor) {}
  ~Channel();
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&&) = delete;

  /// False if the other end is gone.
  bool send(const std::string& message);
  /// Nothing if the other end is gone or `seconds` have passed (below 0: waits as long as it takes).
  std::optional<std::string> receive(double seconds = -1);
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

class ChildProcess {
 public:
  /// `body` runs in the child, which ends with it; an exception ends it with status 1 and a line on stderr.
  /// The child ends with its parent, and leaves Ctrl-C to it.
  explicit ChildProcess(const std::function<void(Channel&)>& body);
  /// Kills the child if it still runs.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  Channel& channel() { return channel_; }
  /// Kills the child if it still runs, and says how it ended: "" for status 0, "was killed by signal 11
  /// (Segmentation fault)".
  std::string stop();
  /// Waits for the child's own end.
  std::string wait();

 private:
  pid_t process_ = -1;
  Channel channel_;
};

}  // namespace tilewright
