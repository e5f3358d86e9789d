#include "runtime/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace tilewright {
namespace {

namespace fs = std::filesystem;

std::string reason() {
  return std::strerror(errno);
}

/// Writes and syncs; the name of what failed, empty on success.
std::string write_file(const fs::path& file, std::string_view bytes, mode_t mode) {
  int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (descriptor < 0) return "cannot create a file: " + reason();
  std::string failure;
  while (failure.empty() && !bytes.empty()) {
    ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      failure = "cannot write a file: " + reason();
    else
      bytes.remove_prefix(written);
  }
  if (failure.empty() && fsync(descriptor) != 0) failure = "cannot sync a file: " + reason();
  close(descriptor);
  return failure;
}

/// "<file>.tmp-<process>-<count>": no two writers share one.
fs::path temporary_beside(const fs::path& file) {
  static std::atomic<unsigned> count{0};
  return file.string() + ".tmp-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

}  // namespace

std::string replace_file(const fs::path& file, std::string_view bytes, mode_t mode) {
  const fs::path temporary = temporary_beside(file);
  std::string failure = write_file(temporary, bytes, mode);
  if (failure.empty() && rename(temporary.c_str(), file.c_str()) != 0)
    failure = "cannot rename a file: " + reason();
  if (!failure.empty()) unlink(temporary.c_str());
  return failure;
}

}  // namespace tilewright
