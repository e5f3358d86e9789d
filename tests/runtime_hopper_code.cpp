// The machine code of the sm90 family's main loop, read from the cubin: what no timing here could show.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>

#include "codegen/error.h"
#include "runtime/include/tilewright/tilewright.hpp"
#include "runtime/nvrtc.h"

namespace tilewright {
namespace {

struct Counts {
  int warpgroup_products = 0;  // HGMMA
  int moves_to_uniform = 0;    // R2UR: a vector register's value into a uniform register
};

// Instructions are 16 bytes; the lowest 12 bits are the opcode, as nvdisasm shows them for sm_90a.
Counts count_instructions(const std::string& cubin) {
  Counts counts;
  Elf64_Ehdr header;
  std::memcpy(&header, cubin.data(), sizeof header);
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, cubin.data() + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_PROGBITS || !(section.sh_flags & SHF_EXECINSTR)) continue;
    for (uint64_t at = section.sh_offset; at < section.sh_offset + section.sh_size; at += 16) {
      uint64_t word;
      std::memcpy(&word, cubin.data() + at, sizeof word);
      counts.warpgroup_products +=
          (word & 0xfff) == 0x9f0 || (word & 0xfff) == 0xdf0;  // A from registers, memory
      counts.moves_to_uniform += (word & 0xfff) == 0x2ca;
    }
  }
  return counts;
}

// A branch that some lanes take, a loop count that is not known to be the same in all of them: the compiler
// then keeps stage and descriptors in vector registers and moves them, two for every product, about three in
// all. That costs 5 % of the time at head dim 128. Kept uniform there are one or two, most of them the
// producer's.
TEST(HopperCode, DescriptorsStayInUniformRegisters) {
  try {
    nvrtc_compiler();
  } catch (const Error&) {
    GTEST_SKIP() << "no NVRTC";
  }
  RuntimeOptions options;
  options.disk_cache = false;
  for (const char* mask : {"none", "causal"})
    for (const char* head_dim : {"64", "128"}) {
      const AttentionSpec spec =
          parse_spec(std::string("head_dim: ") + head_dim + "\nmask: " + mask + "\n", "test");
      const Counts counts = count_instructions(compile(spec, target_by_name("sm_90a"), options).image);
      EXPECT_GE(counts.warpgroup_products, 24) << "head dim " << head_dim << ", mask " << mask;
      EXPECT_LT(counts.moves_to_uniform, 2 * counts.warpgroup_products)
          << "head dim " << head_dim << ", mask " << mask;
    }
}

}  // namespace
}  // namespace tilewright
