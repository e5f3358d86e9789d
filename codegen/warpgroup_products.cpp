#include "codegen/warpgroup_products.h"

#include "codegen/warpgroup_text.h"

namespace tilewright {
namespace {

struct Shape {
  int block_n, head_dim_qk, head_dim_v;
  std::string element;  // "bf16", "f16"
  int element_type;     // the simulator's number for it
  int steps_qk() const { return (head_dim_qk + 15) / 16; }
  int steps_v() const { return block_n / 16; }
  std::string instruction(int n) const {
    return "wgmma.mma_async.sync.aligned.m64n" + text(n) + "k16.f32." + element + "." + element;
  }
};

// Descriptors change in their low word alone; the high word is a constant. As operands of their own, up to
// 128 columns, they are computed ahead and the products follow one another without a gap, Q's even once for
// the whole loop; beyond, that many do not fit the uniform registers, and they are added up between the
// products.
constexpr int most_steps_ahead = 8;

TemplateItem scores_product(const Shape& shape, Backend backend) {
  const int count = shape.block_n / 2, steps = shape.steps_qk();
  const bool ahead = steps <= most_steps_ahead;
  const std::string scores = registers(0, count), instruction = shape.instruction(shape.block_n);
  std::string s =
      "  asm volatile(\"{ .reg .pred first, later; .reg .b32 zero, low_a, low_b; .reg .b64 a, b;\\n\"\n"
      "               \"mov.b32 zero, 0; setp.ne.b32 first, zero, 0; setp.eq.b32 later, zero, 0; "
      "wgmma.fence.sync.aligned;\\n\"\n";
  std::string query, keys;
  for (int k = 0; k < steps; ++k) {
    const std::string query_step = step_offset(k, 64), key_step = step_offset(k, shape.block_n);
    const auto operand = [&](int number) { return "%" + text(count + number); };
    s += "               \"";
    if (!ahead)
      s += "add.u32 low_a, " + operand(0) + ", " + query_step + "; add.u32 low_b, " + operand(1) + ", " +
           key_step + "; mov.b64 a, {low_a, 0x40000040}; mov.b64 b, {low_b, 0x40000040}; ";
    s += instruction + " " + scores + ", " + (ahead ? operand(k) + ", " + operand(steps + k) : "a, b") +
         ", " + (k ? "later" : "first") + ", 1, 1, 0, 0;\\n\"\n";
    query += ", \"l\"(0x4000004000000000ull | (query + " + query_step + "))";
    keys += ", \"l\"(0x4000004000000000ull | (keys + " + key_step + "))";
  }
  s += "               \"wgmma.commit_group.sync.aligned; }\"\n               : " +
       operands("=f", "scores", count) +
       "\n               : " + (ahead ? (query + keys).substr(2) : "\"r\"(query), \"r\"(keys)") +
       " : \"memory\");\n";
  return warpgroup_primitive(
      backend, "multiply_query_keys",
      "/// S = Q K^T. Both operands lie in shared memory; the first step overwrites.\n", "",
      "float (&scores)[" + text(count) + "], u32 query, u32 keys", s,
      "  simulator->warpgroup_fence(site);\n  for (int k = 0; k < " + text(shape.steps_qk()) +
          "; ++k)\n    simulator->warpgroup_multiply(" + text(shape.block_n) +
          ", scores, (const u32*)0, query + (k / 4 * 8192 + k % 4 * 32) / 16, keys + (k / 4 * " +
          text(shape.block_n * 128) + " + k % 4 * 32) / 16, k > 0, 0, " + text(shape.element_type) +
          ", site);\n  simulator->warpgroup_commit(site);\n");
}

TemplateItem output_product(const Shape& shape, Backend backend) {
  const int out = shape.head_dim_v / 2, in = shape.block_n / 4;
  const std::string output = registers(0, out), instruction = shape.instruction(shape.head_dim_v);
  std::string s =
      "  asm volatile(\"{ .reg .pred yes; .reg .b32 zero, low_b; .reg .b64 b;\\n\"\n"
      "               \"mov.b32 zero, 0; setp.eq.b32 yes, zero, 0; wgmma.fence.sync.aligned;\\n\"\n";
  for (int k = 0; k < shape.steps_v(); ++k)
    s += "               \"add.u32 low_b, %" + text(out + in) + ", " + text(k * 128) +
         "; mov.b64 b, {low_b, 0x40000040}; " + instruction + " " + output + ", " +
         registers(out + 4 * k, 4) + ", b, yes, 1, 1, 1;\\n\"\n";
  s += "               \"wgmma.commit_group.sync.aligned; }\"\n               : " +
       operands("+f", "output", out) + "\n               : " + operands("r", "probabilities", in) +
       ", \"r\"(values) : \"memory\");\n";
  return warpgroup_primitive(
      backend, "multiply_probabilities_values",
      "/// O += P V. P lies in registers; V is transposed on the way.\n", "",
      "float (&output)[" + text(out) + "], u32 (&probabilities)[" + text(in) + "], u32 values", s,
      "  simulator->warpgroup_fence(site);\n  for (int k = 0; k < " + text(shape.steps_v()) +
          "; ++k)\n    simulator->warpgroup_multiply(" + text(shape.head_dim_v) +
          ", output, probabilities + 4 * k, 0, values + k * 128, 1, 1, " + text(shape.element_type) +
          ", site);\n  simulator->warpgroup_commit(site);\n");
}

std::string wait_text(const std::string& groups, const std::string& named) {
  return "  asm volatile(\"wgmma.wait_group.sync.aligned " + groups + ";\"\n               : " + named +
         " : \"memory\");\n";
}

TemplateItem scores_wait(const Shape& shape, Backend backend) {
  const int count = shape.block_n / 2;
  return warpgroup_primitive(
      backend, "wait_scores",
      "/// Waits until at most `groups` products are unfinished; the scores are named, so that no use moves "
      "above.\n",
      "template <int groups>\n", "float (&scores)[" + text(count) + "]",
      wait_text("%" + text(count), operands("+f", "scores", count) + "\n               : \"n\"(groups)"),
      "  simulator->warpgroup_wait(groups, site);\n");
}

// `with_scores` keeps the softmax above: the exponentials must run under the product that is waited for.
TemplateItem output_wait(const Shape& shape, Backend backend, bool with_scores) {
  const int out = shape.head_dim_v / 2, scores = shape.block_n / 2, in = shape.block_n / 4;
  return warpgroup_primitive(
      backend, "wait_output",
      with_scores
          ? "/// The same, and keeps the softmax above: the exponentials must run under the product.\n"
          : "/// Waits for all products.\n",
      "",
      "float (&output)[" + text(out) + "], u32 (&probabilities)[" + text(in) + "]" +
          (with_scores ? ", float (&scores)[" + text(scores) + "]" : ""),
      wait_text("0", operands("+f", "output", out) +
                         (with_scores ? ",\n                 " + operands("+f", "scores", scores) : "") +
                         "\n               : " + operands("r", "probabilities", in)),
      "  simulator->warpgroup_wait(0, site);\n");
}

}  // namespace

std::vector<TemplateItem> warpgroup_products(const AttentionSpec& spec, const Schedule& schedule,
                                             Backend backend) {
  const bool bf16 = spec.dtype.q == DataType::bf16;
  const Shape shape{schedule.block_n, spec.head_dim.qk, spec.head_dim.v, bf16 ? "bf16" : "f16", bf16 ? 1 : 0};
  return {scores_product(shape, backend), output_product(shape, backend), scores_wait(shape, backend),
          output_wait(shape, backend, false), output_wait(shape, backend, true)};
}

}  // namespace tilewright
