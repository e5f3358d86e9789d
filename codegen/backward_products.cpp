#include "codegen/backward_products.h"

#include <functional>

#include "codegen/families.h"
#include "codegen/warpgroup_text.h"

namespace tilewright {
namespace {

// Offset of step k in the descriptor's 16-byte units. An operand whose rows run along k has 128-byte panel
// rows of 64 k's; a transposed one has a row for each k.
using StepOffset = std::function<int(int k)>;

StepOffset along_rows(int panel_rows) {
  return [=](int k) { return (k / 4 * panel_rows * 128 + k % 4 * 32) / 16; };
}

int down_rows(int k) {
  return k * 128;
}

// Columns of D from one operand B, perhaps none; their registers follow those of the parts before.
struct Part {
  int columns;
  const char* b;
};

struct Product {
  const char* name;
  const char* comment;
  const char *d, *a;  // names of the operands
  std::vector<Part> parts;
  int steps;        // of 16 along k
  bool accumulate;  // onto what D holds; else the first step overwrites
  enum class A { registers, shared, shared_transposed } a_in;
  StepOffset a_offset;
  bool b_transposed;
  StepOffset b_offset;

  bool a_in_registers() const { return a_in == A::registers; }
  int registers() const {
    int count = 0;
    for (const Part& part : parts) count += part.columns / 2;
    return count;
  }
};

// Descriptors are added to in their low word alone, as in the forward kernel.
std::string device_body(const Product& product, const std::string& element) {
  const int d = product.registers(), a = product.a_in_registers() ? 4 * product.steps : 1;
  std::string s =
      "  asm volatile(\"{ .reg .pred first, later; .reg .b32 zero, low_a, low_b; .reg .b64 a, b;\\n\"\n"
      "               \"mov.b32 zero, 0; setp.ne.b32 first, zero, 0; setp.eq.b32 later, zero, 0; "
      "wgmma.fence.sync.aligned;\\n\"\n";
  for (int k = 0; k < product.steps; ++k) {
    s += "               \"";
    if (!product.a_in_registers())
      s += "add.u32 low_a, %" + text(d) + ", " + text(product.a_offset(k)) +
           "; mov.b64 a, {low_a, 0x40000040}; ";
    int first_register = 0, operand = d + a;
    for (const Part& part : product.parts) {
      if (part.columns == 0) continue;
      s += "add.u32 low_b, %" + text(operand++) + ", " + text(product.b_offset(k)) +
           "; mov.b64 b, {low_b, 0x40000040}; wgmma.mma_async.sync.aligned.m64n" + text(part.columns) +
           "k16.f32." + element + "." + element + " " + registers(first_register, part.columns / 2) + ", " +
           (product.a_in_registers() ? registers(d + 4 * k, 4) : "a") + ", b, " +
           (product.accumulate || k > 0 ? "later" : "first") + ", 1, 1" +
           (product.a_in_registers()             ? ""
            : product.a_in == Product::A::shared ? ", 0"
                                                 : ", 1") +
           (product.b_transposed ? ", 1; " : ", 0; ");
      first_register += part.columns / 2;
    }
    s.back() = '\\';
    s += "n\"\n";
  }
  s += "               \"wgmma.commit_group.sync.aligned; }\"\n               : " +
       operands(product.accumulate ? "+f" : "=f", product.d, d) + "\n               : " +
       (product.a_in_registers() ? operands("r", product.a, a) : "\"r\"(" + std::string(product.a) + ")");
  for (const Part& part : product.parts)
    if (part.columns > 0) s += std::string(", \"r\"(") + part.b + ")";
  return s + " : \"memory\");\n";
}

std::string simulator_body(const Product& product, int element_type) {
  std::string s = "  simulator->warpgroup_fence(site);\n";
  const int transposed = product.b_transposed + 2 * (product.a_in == Product::A::shared_transposed);
  for (int k = 0; k < product.steps; ++k) {
    int first_register = 0;
    for (const Part& part : product.parts) {
      if (part.columns == 0) continue;
      s += "  simulator->warpgroup_multiply(" + text(part.columns) + ", " + product.d + " + " +
           text(first_register) + ", " +
           (product.a_in_registers()
                ? product.a + (" + " + text(4 * k)) + ", 0"
                : "(const u32*)0, " + std::string(product.a) + " + " + text(product.a_offset(k))) +
           ", " + part.b + " + " + text(product.b_offset(k)) + ", " +
           (product.accumulate || k > 0 ? "1, " : "0, ") + text(transposed) + ", " + text(element_type) +
           ", site);\n";
      first_register += part.columns / 2;
    }
  }
  return s + "  simulator->warpgroup_commit(site);\n";
}

std::string parameters(const Product& product) {
  std::string s =
      "float (&" + std::string(product.d) + ")[" + text(product.registers()) + "], u32 " +
      (product.a_in_registers() ? "(&" + std::string(product.a) + ")[" + text(4 * product.steps) + "]"
                                : product.a);
  for (const Part& part : product.parts) s += std::string(", u32 ") + part.b;
  return s;
}

int steps(int width) {
  return (width + 15) / 16;
}

// Consumers with 64 keys each: P and dS stay in the registers that become the A operand.
std::vector<Product> products_by_keys(const AttentionSpec& spec, const Schedule& schedule) {
  using A = Product::A;
  const int rows = schedule.block_m, keys = schedule.block_n, qk = spec.head_dim.qk, v = spec.head_dim.v;
  const int dq = sm90_backward::dq_columns(spec, schedule);
  return {
      {"multiply_scores",
       "/// S^T = K Q^T, all of the head dim; the first step overwrites.\n",
       "scores",
       "keys",
       {{rows, "queries"}},
       steps(qk),
       false,
       A::shared,
       along_rows(keys),
       false,
       along_rows(rows)},
      {"multiply_dp",
       "/// dP^T = V dO^T, likewise.\n",
       "dp",
       "values",
       {{rows, "gradients"}},
       steps(v),
       false,
       A::shared,
       along_rows(keys),
       false,
       along_rows(rows)},
      {"multiply_dv",
       "/// dV += P^T dO. P lies in registers; dO is transposed on the way.\n",
       "dv",
       "probabilities",
       {{v, "gradients"}},
       steps(rows),
       true,
       A::registers,
       {},
       true,
       down_rows},
      {"multiply_dk",
       "/// dK += dS^T Q, likewise.\n",
       "dk",
       "ds",
       {{qk, "queries"}},
       steps(rows),
       true,
       A::registers,
       {},
       true,
       down_rows},
      {"multiply_dq",
       "/// dQ = dS K, over the keys of both consumers: rows or columns of it, see dq_columns.\n",
       "dq",
       "ds",
       {{dq, "keys"}},
       steps(keys),
       false,
       A::shared,
       along_rows(rows),
       true,
       down_rows},
  };
}

// A consumer's columns of a matrix of panels: whole panels, and half of the middle one if their number is
// odd.
std::vector<Part> share(int head_dim, const char* whole, const char* middle) {
  const int panels = (head_dim + 63) / 64;
  return {{panels / 2 * 64, whole}, {panels % 2 * 32, middle}};
}

// Consumers that share 64 keys: each computes P and dS of half of the rows, and half of the columns of dV, dK
// and dQ from all of P and dS, which lie in shared memory.
std::vector<Product> products_by_columns(const AttentionSpec& spec, const Schedule& schedule) {
  using A = Product::A;
  const int rows = schedule.block_m, keys = schedule.block_n, qk = spec.head_dim.qk, v = spec.head_dim.v;
  return {
      {"multiply_scores",
       "/// S^T = K Q^T of half of the rows; the first step overwrites.\n",
       "scores",
       "keys",
       {{rows / 2, "queries"}},
       steps(qk),
       false,
       A::shared,
       along_rows(keys),
       false,
       along_rows(rows)},
      {"multiply_dp",
       "/// dP^T = V dO^T, likewise.\n",
       "dp",
       "values",
       {{rows / 2, "gradients"}},
       steps(v),
       false,
       A::shared,
       along_rows(keys),
       false,
       along_rows(rows)},
      {"multiply_dv", "/// dV += P^T dO, half of the columns: whole panels, then half of the middle one.\n",
       "dv", "probabilities", share(v, "gradients", "gradients_middle"), steps(rows), true, A::shared,
       along_rows(keys), true, down_rows},
      {"multiply_dk", "/// dK += dS^T Q, likewise.\n", "dk", "ds", share(qk, "queries", "queries_middle"),
       steps(rows), true, A::shared, along_rows(keys), true, down_rows},
      {"multiply_dq", "/// dQ = dS K, likewise; dS is transposed on the way too.\n", "dq", "ds",
       share(qk, "keys", "keys_middle"), steps(keys), false, A::shared_transposed, down_rows, true,
       down_rows},
  };
}

}  // namespace

std::vector<TemplateItem> backward_products(const AttentionSpec& spec, const Schedule& schedule,
                                            Backend backend) {
  const bool bf16 = spec.dtype.q == DataType::bf16;
  std::vector<TemplateItem> items;
  for (const Product& product : sm90_backward::splits_columns(schedule) ? products_by_columns(spec, schedule)
                                                                        : products_by_keys(spec, schedule))
    items.push_back(warpgroup_primitive(backend, product.name, product.comment, "", parameters(product),
                                        device_body(product, bf16 ? "bf16" : "f16"),
                                        simulator_body(product, bf16 ? 1 : 0)));
  return items;
}

}  // namespace tilewright
