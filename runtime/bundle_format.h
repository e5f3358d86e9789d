// A bundle: many compiled kernels as the bytes of one file.
//
//   header   64 bytes: magic, format, entries, bytes of the file, Tilewright's version, checksums of index
//   and header index    32 bytes an entry, by ascending key: key, offset and size of the entry entries  one
//   after the other without a gap to the end of the file, each as in the cache, with a checksum of its own
//
// Numbers are little-endian. The key is a hash of source and target: the part of a cache key that is known
// without a compiler. There are no paths in it, nothing is unpacked, and what is read is what was asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cache_entry.h"

namespace tilewright {

/// Any change to the layout takes another number; entries carry that of the cache.
inline constexpr uint32_t bundle_format = 1;
inline constexpr std::string_view bundle_magic = "TWBUNDLE";
inline constexpr size_t bundle_header_bytes = 64, bundle_record_bytes = 32;
inline constexpr size_t bundle_index_checksum_at = 48, bundle_header_checksum_at = 56;

/// The file's bytes. Equal entries give equal bytes, whatever their order; of entries with one source the
/// first remains, and the time that its compile took is not kept.
std::string encode_bundle(std::vector<CacheEntry> entries);

/// A bundle's bytes, checked as far as header and index go. They must outlive it.
class BundleView {
 public:
  /// Throws Error(environment) that says what is wrong with the bytes.
  explicit BundleView(std::string_view bytes);

  size_t size() const { return count_; }
  /// Of the Tilewright that made it.
  std::string version() const;
  /// 32 hexadecimal digits.
  std::string key(size_t index) const;
  size_t entry_bytes(size_t index) const { return record(index).bytes; }
  /// Throws Error(environment) if the entry is damaged or not the one that the index says.
  CacheEntry entry(size_t index) const;
  /// Where the entry with this CacheKey::source is.
  std::optional<size_t> find(std::string_view source_key) const;

 private:
  struct Record {
    uint64_t offset, bytes;
  };
  Record record(size_t index) const;
  std::string_view key_bytes(size_t index) const;

  std::string_view bytes_;
  size_t count_ = 0;
};

}  // namespace tilewright
