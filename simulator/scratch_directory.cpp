#include "simulator/scratch_directory.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "codegen/error.h"

namespace tilewright {
namespace {

void remove_tree(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

// Directories whose objects are never destroyed (an interpreter ends without freeing its kernels) go when the
// process exits. The set itself is never destroyed: objects of other files may still use it then.
struct LiveDirectories {
  std::mutex mutex;
  std::set<std::string> paths;
  const pid_t owner = getpid();  // a forked child must not remove its parent's
};

LiveDirectories& live_directories() {
  static LiveDirectories* live = [] {
    std::atexit([] {
      LiveDirectories& remaining = live_directories();
      if (remaining.owner != getpid()) return;
      const std::lock_guard lock(remaining.mutex);
      for (const std::string& path : remaining.paths) remove_tree(path);
      remaining.paths.clear();
    });
    return new LiveDirectories;
  }();
  return *live;
}

void forget(const std::string& path) {
  LiveDirectories& live = live_directories();
  const std::lock_guard lock(live.mutex);
  live.paths.erase(path);
}

}  // namespace

ScratchDirectory::ScratchDirectory() {
  std::error_code code;
  const std::filesystem::path root = std::filesystem::temp_directory_path(code);
  path_ = ((code ? std::filesystem::path("/tmp") : root) / "tilewright-XXXXXX").string();
  if (!mkdtemp(path_.data())) {
    throw Error(ErrorKind::environment,
                "cannot make a temporary directory " + path_ + ": " + std::strerror(errno) + "; set TMPDIR");
  }
  LiveDirectories& live = live_directories();
  const std::lock_guard lock(live.mutex);
  live.paths.insert(path_);
}

ScratchDirectory::~ScratchDirectory() {
  forget(path_);
  if (!kept_) remove_tree(path_);
}

std::string ScratchDirectory::write(const std::string& name, const std::string& text) const {
  const std::string file = path_ + "/" + name;
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw Error(ErrorKind::environment, "cannot write " + file);
  return file;
}

void ScratchDirectory::keep() {
  kept_ = true;
  forget(path_);
}

}  // namespace tilewright
