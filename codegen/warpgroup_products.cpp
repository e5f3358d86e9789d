#include "codegen/warpgroup_products.h"

namespace tilewright {
namespace {

std::string text(int value) { return std::to_string(value); }

// {%first, ..., %(first + count - 1)}
std::string registers(int first, int count) {
  std::string list = "{";
  for (int i = 0; i < count; ++i) list += (i ? ", %" : "%") + text(first + i);
  return list + "}";
}

// "constraint"(name[0]), "constraint"(name[1]), ...
std::string operands(const char* constraint, const char* name, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    list += std::string(i ? ", " : "") + "\"" + constraint + "\"(" + name + "[" + text(i) + "])";
    if (i % 32 == 31 && i + 1 < count) list += "\n                 ";
  }
  return list;
}

struct Shape {
  int block_n, head_dim_qk, head_dim_v;
  std::string element;    // "bf16", "f16"
  int element_type;       // the simulator's number for it
  int steps_qk() const { return (head_dim_qk + 15) / 16; }
  int steps_v() const { return block_n / 16; }
  std::string instruction(int n) const {
    return "wgmma.mma_async.sync.aligned.m64n" + text(n) + "k16.f32." + element + "." + element;
  }
};

// Offsets, in the descriptor's 16-byte units, of step k: 32 bytes within a 128-byte panel row, then the next panel.
std::string step_offset(int k, int panel_rows) { return text((k / 4 * panel_rows * 128 + k % 4 * 32) / 16); }

// Descriptors are added to in their low word alone and the high word is a constant: 64-bit additions take twice the
// uniform instructions.
std::string scores_product(const Shape& shape) {
  const int count = shape.block_n / 2;
  std::string s =
      "/// S = Q K^T. Both operands lie in shared memory; the first step overwrites.\n"
      "PRIMITIVE void multiply_query_keys(float (&scores)[" + text(count) + "], u32 query, u32 keys)\nDEVICE {\n"
      "  asm volatile(\"{ .reg .pred first, later; .reg .b32 zero, low_a, low_b; .reg .b64 a, b;\\n\"\n"
      "               \"mov.b32 zero, 0; setp.ne.b32 first, zero, 0; setp.eq.b32 later, zero, 0;\\n\"\n"
      "               \"wgmma.fence.sync.aligned;\\n\"\n";
  for (int k = 0; k < shape.steps_qk(); ++k)
    s += "               \"add.u32 low_a, %" + text(count) + ", " + step_offset(k, 64) + "; add.u32 low_b, %" +
         text(count + 1) + ", " + step_offset(k, shape.block_n) +
         "; mov.b64 a, {low_a, 0x40000040}; mov.b64 b, {low_b, 0x40000040};\\n\"\n               \"" +
         shape.instruction(shape.block_n) + " " + registers(0, count) + ", a, b, " + (k ? "later" : "first") +
         ", 1, 1, 0, 0;\\n\"\n";
  return s + "               \"wgmma.commit_group.sync.aligned; }\"\n               : " + operands("=f", "scores", count) +
         "\n               : \"r\"(query), \"r\"(keys) : \"memory\");\n}\nSIMULATOR {\n  simulator->warpgroup_fence(site);\n"
         "  for (int k = 0; k < " + text(shape.steps_qk()) + "; ++k)\n    simulator->warpgroup_multiply(" +
         text(shape.block_n) + ", scores, (const u32*)0, query + (k / 4 * 8192 + k % 4 * 32) / 16, keys + (k / 4 * " +
         text(shape.block_n * 128) + " + k % 4 * 32) / 16, k > 0, 0, " + text(shape.element_type) +
         ", site);\n  simulator->warpgroup_commit(site);\n}\n";
}

std::string output_product(const Shape& shape) {
  const int out = shape.head_dim_v / 2, in = shape.block_n / 4;
  std::string s =
      "/// O += P V. P lies in registers; V is transposed on the way.\n"
      "PRIMITIVE void multiply_probabilities_values(float (&output)[" + text(out) + "], u32 (&probabilities)[" + text(in) +
      "], u32 values)\nDEVICE {\n"
      "  asm volatile(\"{ .reg .pred yes; .reg .b32 zero, low_b; .reg .b64 b;\\n\"\n"
      "               \"mov.b32 zero, 0; setp.eq.b32 yes, zero, 0;\\n\"\n"
      "               \"wgmma.fence.sync.aligned;\\n\"\n";
  for (int k = 0; k < shape.steps_v(); ++k)
    s += "               \"add.u32 low_b, %" + text(out + in) + ", " + text(k * 128) + "; mov.b64 b, {low_b, 0x40000040};\\n\"\n" +
         "               \"" + shape.instruction(shape.head_dim_v) + " " + registers(0, out) + ", " + registers(out + 4 * k, 4) +
         ", b, yes, 1, 1, 1;\\n\"\n";
  return s + "               \"wgmma.commit_group.sync.aligned; }\"\n               : " + operands("+f", "output", out) +
         "\n               : " + operands("r", "probabilities", in) + ", \"r\"(values) : \"memory\");\n}\nSIMULATOR {\n"
         "  simulator->warpgroup_fence(site);\n  for (int k = 0; k < " + text(shape.steps_v()) +
         "; ++k)\n    simulator->warpgroup_multiply(" + text(shape.head_dim_v) +
         ", output, probabilities + 4 * k, 0, values + k * 128, 1, 1, " + text(shape.element_type) +
         ", site);\n  simulator->warpgroup_commit(site);\n}\n";
}

std::string waits(const Shape& shape) {
  const int s = shape.block_n / 2, o = shape.head_dim_v / 2, p = shape.block_n / 4;
  const std::string scores = "float (&scores)[" + text(s) + "]";
  const std::string both = "float (&output)[" + text(o) + "], u32 (&probabilities)[" + text(p) + "]";
  return "/// Waits until at most `groups` products are unfinished; the scores are named, so that no use moves above.\n"
         "template <int groups>\nPRIMITIVE void wait_scores(" + scores + ")\nDEVICE {\n"
         "  asm volatile(\"wgmma.wait_group.sync.aligned %" + text(s) + ";\"\n               : " + operands("+f", "scores", s) +
         "\n               : \"n\"(groups) : \"memory\");\n}\nSIMULATOR { simulator->warpgroup_wait(groups, site); }\n\n"
         "/// Waits for all products.\nPRIMITIVE void wait_output(" + both + ")\nDEVICE {\n"
         "  asm volatile(\"wgmma.wait_group.sync.aligned 0;\"\n               : " + operands("+f", "output", o) +
         "\n               : " + operands("r", "probabilities", p) + " : \"memory\");\n}\nSIMULATOR { simulator->warpgroup_wait(0, site); }\n\n"
         "/// The same, and keeps the softmax above: the exponentials must run under the product that is waited for.\n"
         "PRIMITIVE void wait_output(" + both + ", " + scores + ")\nDEVICE {\n"
         "  asm volatile(\"wgmma.wait_group.sync.aligned 0;\"\n               : " + operands("+f", "output", o) + ",\n                 " +
         operands("+f", "scores", s) + "\n               : " + operands("r", "probabilities", p) +
         " : \"memory\");\n}\nSIMULATOR { simulator->warpgroup_wait(0, site); }\n";
}

}  // namespace

std::string warpgroup_products(const AttentionSpec& spec, const Schedule& schedule) {
  const bool bf16 = spec.dtype.q == DataType::bf16;
  const Shape shape{schedule.block_n, spec.head_dim.qk, spec.head_dim.v, bf16 ? "bf16" : "f16", bf16 ? 1 : 0};
  return scores_product(shape) + "\n" + output_product(shape) + "\n" + waits(shape);
}

}  // namespace tilewright
