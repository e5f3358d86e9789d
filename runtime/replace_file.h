// Files that are there whole or not at all.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace tilewright {

/// Writes a file beside it ("<file>.tmp-<process>-<count>"), syncs it and renames it into place. What failed;
/// empty on success.
std::string replace_file(const std::filesystem::path& file, std::string_view bytes, mode_t mode = 0600);

}  // namespace tilewright
