// One compiled kernel as the bytes of one file: magic, version, fields, image, checksum over all of it.
#pragma once

#include <string>
#include <string_view>

#include "runtime/compiler.h"

namespace tilewright {

/// What was compiled and by what, as two hashes: `source` of the source text, its names and the target,
/// `compiler` of the compiler's identity and options. Two, so that a machine without a compiler still finds
/// kernels for a source.
struct CacheKey {
  std::string source;    // 32 hexadecimal digits
  std::string compiler;  // 32 hexadecimal digits
  bool operator==(const CacheKey&) const = default;

  std::string name() const { return source + "-" + compiler; }
};

struct CacheEntry {
  CacheKey key;
  std::string spec;         // canonical form
  std::string schedule;     // described
  std::string target;       // "sm_90a"
  std::string kernel_name;  // entry point
  CompiledImage compiled;
};

/// Any change to the bytes of an entry, or to what a key hashes, takes another number.
inline constexpr uint32_t cache_format = 1;

std::string encode_entry(const CacheEntry& entry);

/// Throws Error(environment) that says what is wrong with the bytes.
CacheEntry decode_entry(std::string_view bytes);

}  // namespace tilewright
