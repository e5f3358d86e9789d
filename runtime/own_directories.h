// Where this library and this program lie: what ships with them is looked for beside them.
#pragma once

#include <filesystem>
#include <vector>

namespace tilewright {

/// The directories of this library (or of the program that it is linked into) and of the program.
std::vector<std::filesystem::path> own_directories();

}  // namespace tilewright
