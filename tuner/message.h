// What two processes of one program tell each other: numbers and texts, one after the other.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "codegen/error.h"

namespace tilewright {

class MessageWriter {
 public:
  MessageWriter& put(int64_t value) { return append(&value, sizeof value); }
  MessageWriter& put(int value) { return put(int64_t{value}); }
  MessageWriter& put(double value) { return append(&value, sizeof value); }
  MessageWriter& put(std::string_view text) {
    put(static_cast<int64_t>(text.size()));
    return append(text.data(), text.size());
  }
  const std::string& bytes() const { return bytes_; }

 private:
  MessageWriter& append(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
    return *this;
  }
  std::string bytes_;
};

/// Throws Error(internal) if a message is shorter than what is read from it.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}
  int64_t integer() { return number<int64_t>(); }
  int small_integer() { return static_cast<int>(integer()); }
  double real() { return number<double>(); }
  std::string text() { return std::string(take(static_cast<size_t>(integer()))); }

 private:
  template <typename Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view take(size_t size) {
    if (size > rest_.size()) throw Error(ErrorKind::internal, "a message of another process is too short");
    const std::string_view part = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return part;
  }
  std::string_view rest_;
};

}  // namespace tilewright
