#include "runtime/bundle_format.h"

#include <cstring>
#include <map>

#include "codegen/error.h"
#include "runtime/hash.h"

namespace tilewright {
namespace {

constexpr size_t key_size = 16, version_at = 24, version_size = 24;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::environment, why);
}

template <typename T>
T number_at(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

int digit_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

/// 16 bytes from 32 hexadecimal digits; empty if they are something else.
std::string packed_key(std::string_view digits) {
  std::string key;
  if (digits.size() != 2 * key_size) return key;
  for (size_t i = 0; i < key_size; ++i) {
    const int high = digit_value(digits[2 * i]), low = digit_value(digits[2 * i + 1]);
    if (high < 0 || low < 0) return {};
    key.push_back(static_cast<char>(16 * high + low));
  }
  return key;
}

}  // namespace

std::string encode_bundle(std::vector<CacheEntry> entries) {
  std::map<std::string, CacheEntry*> by_key;
  for (CacheEntry& entry : entries) by_key.emplace(entry.key.source, &entry);

  std::string index, body;
  const uint64_t start = bundle_header_bytes + bundle_record_bytes * by_key.size();
  for (const auto& [digits, entry] : by_key) {
    const std::string key = packed_key(digits);
    if (key.empty()) throw Error(ErrorKind::internal, "a kernel's key is not 32 hexadecimal digits");
    entry->compiled.report.milliseconds = 0;  // differs from run to run
    const std::string bytes = encode_entry(*entry);
    index += key;
    append(index, uint64_t{start + body.size()});
    append(index, uint64_t{bytes.size()});
    body += bytes;
  }
  std::string file(bundle_magic);
  append(file, bundle_format);
  append(file, static_cast<uint32_t>(by_key.size()));
  append(file, uint64_t{start + body.size()});
  std::string version(TILEWRIGHT_VERSION);
  version.resize(version_size);
  file += version;
  append(file, hash64(index));
  append(file, hash64(file));
  return file + index + body;
}

BundleView::BundleView(std::string_view bytes) : bytes_(bytes) {
  if (bytes.size() < bundle_header_bytes || !bytes.starts_with(bundle_magic))
    refuse("not a bundle, or cut short");
  if (const auto format = number_at<uint32_t>(bytes, 8); format != bundle_format)
    refuse("format " + std::to_string(format) + ", expected " + std::to_string(bundle_format) +
           "; make it anew with `tilewright precompile`");
  if (hash64(bytes.substr(0, bundle_header_checksum_at)) !=
      number_at<uint64_t>(bytes, bundle_header_checksum_at))
    refuse("the header's checksum does not hold");
  if (const auto expected = number_at<uint64_t>(bytes, 16); expected != bytes.size())
    refuse("it has " + std::to_string(bytes.size()) + " bytes, expected " + std::to_string(expected));
  count_ = number_at<uint32_t>(bytes, 12);
  if (count_ > (bytes.size() - bundle_header_bytes) / bundle_record_bytes)
    refuse("an index of " + std::to_string(count_) + " entries does not fit its " +
           std::to_string(bytes.size()) + " bytes");
  const std::string_view index = bytes.substr(bundle_header_bytes, bundle_record_bytes * count_);
  if (hash64(index) != number_at<uint64_t>(bytes, bundle_index_checksum_at))
    refuse("the index's checksum does not hold");
  uint64_t next = bundle_header_bytes + index.size();
  for (size_t i = 0; i < count_; ++i) {
    const Record here = record(i);
    if (here.offset != next || here.bytes > bytes.size() - next)
      refuse("entry " + std::to_string(i) +
             " is not where the one before it ends, or reaches beyond the file");
    if (i > 0 && key_bytes(i - 1) >= key_bytes(i)) refuse("the keys of the index are not in order");
    next += here.bytes;
  }
  if (next != bytes.size()) refuse("bytes after the last entry");
}

BundleView::Record BundleView::record(size_t index) const {
  const size_t at = bundle_header_bytes + bundle_record_bytes * index + key_size;
  return {number_at<uint64_t>(bytes_, at), number_at<uint64_t>(bytes_, at + 8)};
}

std::string_view BundleView::key_bytes(size_t index) const {
  return bytes_.substr(bundle_header_bytes + bundle_record_bytes * index, key_size);
}

std::string BundleView::version() const {
  const std::string_view text = bytes_.substr(version_at, version_size);
  return std::string(text.substr(0, text.find('\0')));
}

std::string BundleView::key(size_t index) const {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : key_bytes(index)) {
    text.push_back(digits[static_cast<unsigned char>(byte) >> 4]);
    text.push_back(digits[byte & 15]);
  }
  return text;
}

CacheEntry BundleView::entry(size_t index) const {
  const Record here = record(index);
  CacheEntry entry = decode_entry(bytes_.substr(here.offset, here.bytes));
  if (entry.key.source != key(index)) refuse("entry " + std::to_string(index) + " is another kernel's");
  return entry;
}

std::optional<size_t> BundleView::find(std::string_view source_key) const {
  const std::string key = packed_key(source_key);
  if (key.empty()) return std::nullopt;
  size_t low = 0, high = count_;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (key_bytes(middle) < key)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == count_ || key_bytes(low) != key) return std::nullopt;
  return low;
}

}  // namespace tilewright
