// A file's bytes, mapped read-only.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace tilewright {

class MappedFile {
 public:
  /// Nothing if the file cannot be opened or is not a regular file.
  static std::optional<MappedFile> open(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  MappedFile(void* data, size_t size) : data_(data), size_(size) {}
  void* data_;
  size_t size_;
};

}  // namespace tilewright
