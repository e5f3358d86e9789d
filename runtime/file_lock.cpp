#include "runtime/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

namespace tilewright {
namespace {

using Clock = std::chrono::steady_clock;

/// Whether the descriptor's file is still the one at the path: a holder removes the file before it lets go,
/// and a lock on a removed file locks nothing.
bool still_there(int descriptor, const std::filesystem::path& file) {
  struct stat locked, present;
  return fstat(descriptor, &locked) == 0 && stat(file.c_str(), &present) == 0 &&
         locked.st_ino == present.st_ino && locked.st_dev == present.st_dev;
}

}  // namespace

FileLock::FileLock(std::filesystem::path file, std::chrono::duration<double> limit) : file_(std::move(file)) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  std::chrono::duration<double> pause = std::chrono::milliseconds(1);
  while (true) {
    int descriptor = open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0) return;
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
      if (still_there(descriptor, file_)) {
        descriptor_ = descriptor;
        return;
      }
      close(descriptor);
      continue;
    }
    const int reason = errno;
    close(descriptor);
    if (reason != EWOULDBLOCK && reason != EINTR) return;
    if (Clock::now() >= deadline) return;
    // Polled, because a blocking flock has no time limit; compiles take hundreds of milliseconds.
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::duration<double>>(pause * 2, std::chrono::milliseconds(20));
  }
}

FileLock::~FileLock() {
  if (!held()) return;
  unlink(file_.c_str());
  close(descriptor_);
}

}  // namespace tilewright
