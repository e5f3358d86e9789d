#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "codegen/error.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

AttentionSpec load_spec(const std::filesystem::path& file) {
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  // An empty file leaves the copy without a character, which is no failure.
  if (stream && stream.peek() != std::ifstream::traits_type::eof()) text << stream.rdbuf();
  if (!stream.is_open() || stream.bad() || errno == EISDIR)
    throw Error(ErrorKind::environment,
                "cannot read the spec " + file.string() + ": " + std::strerror(errno ? errno : EIO));
  return parse_spec(text.str(), file.string());
}

}  // namespace tilewright
