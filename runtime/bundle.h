// A bundle file, mapped: kernels are read from it as they are asked for.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "runtime/bundle_format.h"
#include "runtime/mapped_file.h"

namespace tilewright {

class Bundle {
 public:
  /// Throws Error(environment) that names the file if it cannot be read, if others can write it (its content
  /// is code), or if it is no whole bundle of this format.
  explicit Bundle(const std::filesystem::path& file);

  const std::filesystem::path& path() const { return path_; }
  const BundleView& view() const { return *view_; }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::optional<BundleView> view_;
};

/// The paths of a list with colons between; empty ones are left out.
std::vector<std::filesystem::path> path_list(const std::string& text);

/// "the bundle a.twb", "the bundles a.twb, b.twb"; empty without any.
std::string names_of(const std::vector<std::shared_ptr<const Bundle>>& bundles);

}  // namespace tilewright
