#include "runtime/own_directories.h"

#include <dlfcn.h>

namespace tilewright {

std::vector<std::filesystem::path> own_directories() {
  namespace fs = std::filesystem;
  std::vector<fs::path> directories;
  std::error_code error;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&own_directories), &info) && info.dli_fname)
    directories.push_back(fs::absolute(info.dli_fname, error).parent_path());
  fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) directories.push_back(program.parent_path());
  return directories;
}

}  // namespace tilewright
