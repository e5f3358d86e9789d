// Fuzz target: any bytes either are refused or are a bundle whose entries are refused or decode to what
// encodes to the same bytes again. Checksums would stop nearly every input, so each is tried a second time
// with those of header, index and last entry made to hold, and a third time as changes to a good bundle: two
// bytes of place, one of value.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "codegen/error.h"
#include "runtime/bundle_format.h"
#include "runtime/hash.h"

namespace {

void require(bool holds, const char* property) {
  if (holds) return;
  std::cerr << "broken property: " << property << "\n";
  std::abort();
}

void put(std::string& bytes, size_t at, const void* value, size_t size) {
  std::memcpy(bytes.data() + at, value, size);
}

/// The size, the checksums of header, index and of the last entry.
std::string repaired(std::string bytes) {
  using namespace tilewright;
  if (bytes.size() < bundle_header_bytes) return bytes;
  put(bytes, 0, bundle_magic.data(), bundle_magic.size());
  put(bytes, 8, &bundle_format, sizeof bundle_format);
  const uint64_t size = bytes.size();
  put(bytes, 16, &size, sizeof size);
  uint32_t count = 0;
  std::memcpy(&count, bytes.data() + 12, sizeof count);
  const uint64_t index_bytes = uint64_t{count} * bundle_record_bytes;
  if (index_bytes <= size - bundle_header_bytes) {
    const uint64_t index = hash64(std::string_view(bytes).substr(bundle_header_bytes, index_bytes));
    put(bytes, bundle_index_checksum_at, &index, sizeof index);
    if (count > 0) {
      uint64_t offset = 0;
      std::memcpy(&offset, bytes.data() + bundle_header_bytes + index_bytes - 16, sizeof offset);
      if (offset < size && size - offset > 32) {
        const std::string checksum = hash_hex(std::string_view(bytes).substr(offset, size - offset - 32));
        put(bytes, size - 32, checksum.data(), checksum.size());
      }
    }
  }
  const uint64_t header = hash64(std::string_view(bytes).substr(0, bundle_header_checksum_at));
  put(bytes, bundle_header_checksum_at, &header, sizeof header);
  return bytes;
}

std::string good_bundle() {
  std::vector<tilewright::CacheEntry> entries(3);
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].key = {std::string(32, static_cast<char>('a' + i)), std::string(32, '0')};
    entries[i].spec = "head_dim: 64\n";
    entries[i].compiled.image = "image";
    entries[i].compiled.report.notes = {"a note", ""};
  }
  return tilewright::encode_bundle(entries);
}

std::string edited(std::string bytes, const std::string& edits) {
  for (size_t i = 0; i + 3 <= edits.size(); i += 3) {
    const size_t place =
        static_cast<unsigned char>(edits[i]) * 256u + static_cast<unsigned char>(edits[i + 1]);
    bytes[place % bytes.size()] = edits[i + 2];
  }
  return bytes;
}

void look_into(const std::string& bytes) {
  using namespace tilewright;
  try {
    const BundleView view(bytes);
    view.version();
    for (size_t i = 0; i < view.size(); ++i) {
      require(view.find(view.key(i)) == i, "an entry is found by its key");
      try {
        const CacheEntry entry = view.entry(i);
        require(encode_entry(entry).size() == view.entry_bytes(i), "an entry encodes to as many bytes");
      } catch (const Error& error) {
        require(error.kind() == ErrorKind::environment, "a bad entry is an error of the environment");
      }
    }
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::environment, "a bad bundle is an error of the environment");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  look_into(bytes);
  look_into(repaired(bytes));
  static const std::string good = good_bundle();
  look_into(edited(good, bytes));
  look_into(repaired(edited(good, bytes)));
  return 0;
}
