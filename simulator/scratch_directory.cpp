#include "simulator/scratch_directory.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "codegen/error.h"

namespace tilewright {

ScratchDirectory::ScratchDirectory() {
  std::error_code code;
  const std::filesystem::path root = std::filesystem::temp_directory_path(code);
  path_ = ((code ? std::filesystem::path("/tmp") : root) / "tilewright-XXXXXX").string();
  if (!mkdtemp(path_.data())) {
    throw Error(ErrorKind::environment,
                "cannot make a temporary directory " + path_ + ": " + std::strerror(errno) + "; set TMPDIR");
  }
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  if (!kept_) std::filesystem::remove_all(path_, ignored);
}

std::string ScratchDirectory::write(const std::string& name, const std::string& text) const {
  const std::string file = path_ + "/" + name;
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw Error(ErrorKind::environment, "cannot write " + file);
  return file;
}

}  // namespace tilewright
