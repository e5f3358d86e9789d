// A lock between processes, on a file. The kernel releases it when its holder ends, however it ends.
#pragma once

#include <chrono>
#include <filesystem>

namespace tilewright {

class FileLock {
 public:
  /// Waits at most `limit`, then goes without the lock; goes without at once where files cannot be made or
  /// locked. Also excludes other threads of this process.
  FileLock(std::filesystem::path file, std::chrono::duration<double> limit);
  /// Removes the file and releases the lock.
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool held() const { return descriptor_ >= 0; }

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace tilewright
