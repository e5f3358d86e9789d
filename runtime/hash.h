// Content hashes: 128 bits of XXH3, as 32 hexadecimal digits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tilewright {

std::string hash_hex(std::string_view bytes);
uint64_t hash64(std::string_view bytes);

}  // namespace tilewright
