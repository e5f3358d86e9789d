// What identifies a shared library on disk, read without loading it.
#pragma once

#include <filesystem>
#include <string>

namespace tilewright {

/// "build <build id in hexadecimal>"; for a library without one, "content <hash of the whole file>". Throws
/// Error(environment) if the file cannot be read.
std::string library_fingerprint(const std::filesystem::path& file);

}  // namespace tilewright
