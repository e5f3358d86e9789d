// The directory of compiled kernels: where it is, whether it may be trusted, and its files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cache_entry.h"

namespace tilewright {

/// $TILEWRIGHT_CACHE_DIR, else $XDG_CACHE_HOME/tilewright, else $HOME/.cache/tilewright; nothing without all
/// three.
std::optional<std::filesystem::path> default_cache_directory();

/// Why kernels in a directory must not be loaded (cubins are code): not a directory, somebody else's, or
/// writable by others. Empty: it may be used. A directory owned by root that others cannot write may be read.
std::string untrusted_because(const std::filesystem::path& directory);

class CacheDirectory {
 public:
  /// For reading and writing: created if it does not exist (0700). Throws Error(environment) if it cannot be
  /// used.
  static CacheDirectory open(const std::filesystem::path& path);
  /// For reading. Throws Error(environment) if it cannot be used.
  static CacheDirectory open_read_only(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file_of(const CacheKey& key) const;
  std::filesystem::path lock_of(const CacheKey& key) const;

  /// The entry of a key; with `any_compiler`, an entry for the same source by whatever compiler. Nothing on a
  /// miss. A bad entry is a miss with one warning.
  std::optional<CacheEntry> find(const CacheKey& key, bool any_compiler) const;

  /// Written to a temporary file, synced and renamed into place. Throws Error(environment) if that fails.
  void store(const CacheEntry& entry) const;

  /// Keeps text beside the entry ("<entry>.<extension>") and returns its path; empty if that fails.
  std::filesystem::path keep(const std::string& folder, const std::string& name, std::string_view text) const;

  struct Listing {
    std::filesystem::path file;
    uintmax_t bytes = 0;
    std::optional<CacheEntry> entry;  // without its image; nothing if the file is bad
    std::string problem;
  };
  /// Every entry, checked, in the order of their names.
  std::vector<Listing> list() const;

 private:
  explicit CacheDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  std::optional<CacheEntry> read(const std::filesystem::path& file, const CacheKey& key,
                                 bool any_compiler) const;
  std::filesystem::path path_;
};

}  // namespace tilewright
