#include "runtime/cache_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "codegen/error.h"
#include "runtime/environment.h"
#include "runtime/replace_file.h"
#include "runtime/warning.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view entry_extension = ".twk";

std::string reason() {
  return std::strerror(errno);
}

/// All bytes of a regular file; nothing if it cannot be read.
std::optional<std::string> read_file(const fs::path& file) {
  int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return std::nullopt;
  struct stat status;
  std::string bytes;
  bool good = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  if (good) bytes.resize(status.st_size);
  size_t filled = 0;
  while (good && filled < bytes.size()) {
    ssize_t got = read(descriptor, bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    good = got >= 0;
    if (got <= 0) break;
    filled += got;
  }
  close(descriptor);
  if (!good) return std::nullopt;
  bytes.resize(filled);
  return bytes;
}

/// What writers that were killed left of this entry. A writer that is still at it fails to rename; its kernel
/// is the one that has just been stored.
void remove_leftovers(const fs::path& file) {
  std::error_code error;
  const std::string prefix = file.filename().string() + ".tmp-";
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator at(file.parent_path(), error), end; !error && at != end; at.increment(error))
    if (at->path().filename().string().starts_with(prefix)) leftovers.push_back(at->path());
  for (const auto& leftover : leftovers) fs::remove(leftover, error);
}

std::vector<fs::path> sorted_entries(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    paths.push_back(at->path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::optional<fs::path> default_cache_directory() {
  if (auto directory = environment(Variable::cache_directory)) return *directory;
  // Relative paths there are to be ignored, says the XDG specification.
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache == '/')
    return fs::path(cache) / "tilewright";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".cache/tilewright";
  return std::nullopt;
}

std::string untrusted_because(const fs::path& directory) {
  struct stat status;
  if (stat(directory.c_str(), &status) != 0) return "cannot be opened: " + reason();
  if (!S_ISDIR(status.st_mode)) return "is not a directory";
  if (status.st_uid != geteuid() && status.st_uid != 0)
    return "belongs to another user (uid " + std::to_string(status.st_uid) + ")";
  if (status.st_mode & (S_IWGRP | S_IWOTH)) return "can be written by other users (chmod go-w would mend it)";
  return {};
}

CacheDirectory CacheDirectory::open(const fs::path& path) {
  fs::path absolute = fs::absolute(path).lexically_normal();
  std::error_code error;
  if (!fs::exists(absolute, error)) {
    fs::create_directories(absolute.parent_path(), error);
    if (error || (mkdir(absolute.c_str(), 0700) != 0 && errno != EEXIST))
      throw Error(ErrorKind::environment, "cannot be created: " + (error ? error.message() : reason()));
  }
  return open_read_only(absolute);
}

CacheDirectory CacheDirectory::open_read_only(const fs::path& path) {
  if (std::string why = untrusted_because(path); !why.empty()) throw Error(ErrorKind::environment, why);
  return CacheDirectory(fs::absolute(path).lexically_normal());
}

fs::path CacheDirectory::file_of(const CacheKey& key) const {
  return path_ / key.source.substr(0, 2) / (key.name() + std::string(entry_extension));
}

fs::path CacheDirectory::lock_of(const CacheKey& key) const {
  std::error_code error;
  fs::create_directory(path_ / "locks", error);
  return path_ / "locks" / (key.name() + ".lock");
}

std::optional<CacheEntry> CacheDirectory::read(const fs::path& file, const CacheKey& key,
                                               bool any_compiler) const {
  auto bytes = read_file(file);
  if (!bytes) return std::nullopt;
  std::string problem;
  try {
    CacheEntry entry = decode_entry(*bytes);
    if (entry.key.source == key.source && (any_compiler || entry.key.compiler == key.compiler)) return entry;
    problem = "it belongs to another key";
  } catch (const Error& error) {
    problem = error.what();
  }
  warn_once("the cached kernel " + file.string() + " is bad (" + problem + ") and will be made again");
  return std::nullopt;
}

std::optional<CacheEntry> CacheDirectory::find(const CacheKey& key, bool any_compiler) const {
  if (!any_compiler) return read(file_of(key), key, false);
  for (const auto& file : sorted_entries(file_of(key).parent_path())) {
    std::string name = file.filename().string();
    if (!name.starts_with(key.source + "-") || !name.ends_with(entry_extension)) continue;
    if (auto entry = read(file, key, true)) return entry;
  }
  return std::nullopt;
}

void CacheDirectory::store(const CacheEntry& entry) const {
  const fs::path file = file_of(entry.key);
  if (mkdir(file.parent_path().c_str(), 0700) != 0 && errno != EEXIST)
    throw Error(ErrorKind::environment, "cannot create a directory: " + reason());
  if (std::string failure = replace_file(file, encode_entry(entry)); !failure.empty())
    throw Error(ErrorKind::environment, failure);
  remove_leftovers(file);
}

fs::path CacheDirectory::keep(const std::string& folder, const std::string& name,
                              std::string_view text) const {
  std::error_code error;
  fs::create_directories(path_ / folder, error);
  const fs::path file = path_ / folder / name;
  return replace_file(file, text).empty() ? file : fs::path();
}

std::vector<CacheDirectory::Listing> CacheDirectory::list() const {
  std::vector<Listing> listings;
  for (const auto& shard : sorted_entries(path_)) {
    if (shard.filename().string().size() != 2) continue;
    for (const auto& file : sorted_entries(shard)) {
      if (file.extension() != entry_extension) continue;
      Listing listing;
      listing.file = file;
      auto bytes = read_file(file);
      listing.bytes = bytes ? bytes->size() : 0;
      try {
        if (!bytes) throw Error(ErrorKind::environment, "cannot be read");
        CacheEntry entry = decode_entry(*bytes);
        if (entry.key.name() + std::string(entry_extension) != file.filename())
          throw Error(ErrorKind::environment, "it belongs to another key");
        entry.compiled.image.clear();
        listing.entry = std::move(entry);
      } catch (const Error& error) {
        listing.problem = error.what();
      }
      listings.push_back(std::move(listing));
    }
  }
  return listings;
}

}  // namespace tilewright
