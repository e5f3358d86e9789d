// Where compiled kernels come from: bundles, then a read-only site directory, then the user's directory, then
// a compile that happens once a key, across threads and processes.
#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "runtime/bundle.h"
#include "runtime/cache_directory.h"
#include "runtime/cache_entry.h"

namespace tilewright {

/// CacheKey::source: what was compiled, and for what, whatever the compiler.
std::string kernel_source_key(const Source& source, const Target& target, bool as_ptx);

class KernelCache {
 public:
  struct Options {
    std::optional<std::filesystem::path> directory;  // absent: the default one
    bool disk = true;
    double lock_seconds = 60;                         // how long to wait for another process's compile
    std::vector<std::filesystem::path> bundles = {};  // asked first, in this order
    bool compiling = true;                            // false: what is not there is an error
  };
  /// Never throws for a directory that cannot be used: kernels then live in memory alone, with one warning.
  /// Throws Error(environment) for a bundle that cannot be used.
  explicit KernelCache(const Options& options);

  /// `compiler` null: there is none; its part of the key is then empty. With TILEWRIGHT_CACHE_DEBUG the
  /// hashed bytes are kept in the directory's `hashed` folder.
  CacheKey key(const Source& source, const Target& target, bool as_ptx, Compiler* compiler) const;

  /// The entry of a key. On a miss `make` is called: by one thread of all that ask for the key at once, and
  /// by one process while the others wait for at most `lock_seconds` and then compile privately. An exception
  /// of `make` reaches everybody who waits for it in this process, and is then forgotten. A key without a
  /// compiler part matches any compiler's entry.
  std::shared_ptr<const CacheEntry> fetch(const CacheKey& key, const std::function<CacheEntry()>& make,
                                          CacheResult* from = nullptr);

  /// The entry for a source (CacheKey::source) in the bundles, or null; no compiler, lock or directory takes
  /// part. A damaged entry is none, with one warning.
  std::shared_ptr<const CacheEntry> find_in_bundles(const std::string& source_key) const;
  const std::vector<std::shared_ptr<const Bundle>>& bundles() const { return bundles_; }
  bool compiling() const { return compiling_; }

  /// Keeps the source of a failed compile: in the directory's `failed` folder, else in the system's directory
  /// for temporary files. The path, or an empty one.
  std::filesystem::path keep_failed(const Source& source) const;

  /// The user's directory, if it can be used.
  const std::optional<CacheDirectory>& directory() const { return user_; }

 private:
  using Shared = std::shared_ptr<const CacheEntry>;
  std::string hash_of(const std::string& bytes) const;
  std::optional<CacheEntry> find_on_disk(const CacheKey& key) const;
  Shared make_once(const CacheKey& key, const std::function<CacheEntry()>& make, CacheResult& from);
  void store(const CacheEntry& entry) const;

  double lock_seconds_;
  bool compiling_;
  std::vector<std::shared_ptr<const Bundle>> bundles_;
  std::optional<CacheDirectory> site_, user_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_future<Shared>> in_flight_;
};

}  // namespace tilewright
