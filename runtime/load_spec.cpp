#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "codegen/error.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

AttentionSpec load_spec(const std::filesystem::path& file) {
  constexpr std::streamsize enough = 65 * 1024;  // more than any spec may have: the parser refuses the rest
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::string text(enough, '\0');
  stream.read(text.data(), enough);
  text.resize(static_cast<size_t>(stream.gcount()));
  if (!stream.is_open() || stream.bad() || errno == EISDIR)
    throw Error(ErrorKind::environment,
                "cannot read the spec " + file.string() + ": " + std::strerror(errno ? errno : EIO));
  return parse_spec(text, file.string());
}

}  // namespace tilewright
