// A row's limits as a CUDA function: calls of templates/expression_limits.cuh.
#include "codegen/expression_cuda.h"
#include "codegen/expression_cuda_text.h"
#include "codegen/expression_key_ranges.h"

namespace tilewright {
namespace {

class LimitPrinter {
 public:
  std::string print(const KeyRule& rule) {
    switch (rule.kind) {
      case KeyRule::Kind::at_most:
        return "limits_at_most(" + value(*rule.expression) + ", key)";
      case KeyRule::Kind::at_least:
        return "limits_at_least(" + value(*rule.expression) + ", key)";
      case KeyRule::Kind::all_of:
      case KeyRule::Kind::any_of: {
        const std::string a = named(print(rule.rules[0])), b = named(print(rule.rules[1]));
        return (rule.kind == KeyRule::Kind::all_of ? "and_limits(" : "or_limits(") + a + ", " + b + ")";
      }
      default:  // `when`: gives_limits() knows of no other
        return "limits_if(" + value(*rule.expression) + ")";
    }
  }

  std::string statements;

 private:
  std::string value(const Expression& expression) { return value_text(expression, statements, values_); }

  std::string named(const std::string& text) {
    const std::string name = "l" + std::to_string(++names_);
    statements += "  const KeyLimits " + name + " = " + text + ";\n";
    return name;
  }

  int names_ = 0, values_ = 0;
};

}  // namespace

std::string row_limits_function(const Expression& mask) {
  LimitPrinter printer;
  const std::string limits = printer.print(key_rule(mask));
  return "/// " + to_text(mask) +
         "\n__device__ __forceinline__ KeyLimits row_limits(const Scope& scope, int q, int key) {\n" +
         printer.statements + "  return " + limits + ";\n}\n";
}

}  // namespace tilewright
