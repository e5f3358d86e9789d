#include "runtime/bundle.h"

#include <sys/stat.h>

#include "codegen/error.h"

namespace tilewright {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& why) {
  throw Error(ErrorKind::environment, "the bundle " + file.string() + " cannot be used: " + why);
}

MappedFile map(const std::filesystem::path& file) {
  struct stat status;
  if (stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & S_IWOTH))
    refuse(file, "any user can write it, and its content is code (chmod o-w would mend it)");
  auto mapped = MappedFile::open(file);
  if (!mapped) refuse(file, "it does not exist, cannot be read or is no regular file");
  return std::move(*mapped);
}

}  // namespace

Bundle::Bundle(const std::filesystem::path& file) : path_(file), file_(map(file)) {
  try {
    view_.emplace(file_.bytes());
  } catch (const Error& error) {
    refuse(file, error.what());
  }
}

std::vector<std::filesystem::path> path_list(const std::string& text) {
  std::vector<std::filesystem::path> paths;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(':', at), text.size());
    if (end > at) paths.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return paths;
}

std::string names_of(const std::vector<std::shared_ptr<const Bundle>>& bundles) {
  std::string text;
  for (const auto& bundle : bundles) text += (text.empty() ? "" : ", ") + bundle->path().string();
  if (text.empty()) return text;
  return (bundles.size() == 1 ? "the bundle " : "the bundles ") + text;
}

}  // namespace tilewright
