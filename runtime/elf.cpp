#include "runtime/elf.h"

#include <elf.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "codegen/error.h"
#include "runtime/hash.h"
#include "runtime/mapped_file.h"

namespace tilewright {
namespace {

template <typename T>
std::optional<T> read(std::string_view bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::string hexadecimal(std::string_view bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

/// The NT_GNU_BUILD_ID note among the bytes of one PT_NOTE segment.
std::string build_id_in_notes(std::string_view notes) {
  auto padded = [](uint64_t size) { return (size + 3) & ~uint64_t{3}; };
  uint64_t offset = 0;
  while (auto note = read<Elf64_Nhdr>(notes, offset)) {
    uint64_t name = offset + sizeof(Elf64_Nhdr);
    uint64_t description = name + padded(note->n_namesz);
    uint64_t end = description + padded(note->n_descsz);
    if (end > notes.size()) break;
    if (note->n_type == NT_GNU_BUILD_ID && notes.substr(name, note->n_namesz) == std::string_view("GNU\0", 4))
      return hexadecimal(notes.substr(description, note->n_descsz));
    offset = end;
  }
  return {};
}

std::string build_id(std::string_view bytes) {
  auto header = read<Elf64_Ehdr>(bytes, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64)
    return {};
  for (int i = 0; i < header->e_phnum; ++i) {
    auto segment = read<Elf64_Phdr>(bytes, header->e_phoff + uint64_t{header->e_phentsize} * i);
    if (!segment) return {};
    if (segment->p_type != PT_NOTE || segment->p_offset > bytes.size()) continue;
    std::string id = build_id_in_notes(bytes.substr(segment->p_offset, segment->p_filesz));
    if (!id.empty()) return id;
  }
  return {};
}

}  // namespace

std::string library_fingerprint(const std::filesystem::path& file) {
  auto mapped = MappedFile::open(file);
  if (!mapped) throw Error(ErrorKind::environment, "cannot read the library " + file.string());
  std::string id = build_id(mapped->bytes());
  return id.empty() ? "content " + hash_hex(mapped->bytes()) : "build " + id;
}

}  // namespace tilewright
