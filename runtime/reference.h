// The answer a kernel must give, computed slowly on the CPU, and the rule that says how close it must come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// out: [batch, seqlen_q, heads, head_dim.v]; lse: [batch, heads, seqlen_q]; both contiguous. Layout packed:
/// batch 1.
struct ReferenceResult {
  std::vector<double> out;
  std::vector<double> lse;
  std::vector<bool> live;  // layout packed: of each row, whether a sequence has it; empty: all
};

/// Everything in fp64 from the stored (rounded) inputs. Reads q, k, v of `arguments` (host memory).
ReferenceResult reference_forward(const AttentionSpec& spec, const ForwardArguments& arguments);

/// The plain implementation in the spec's dtype that the tolerance is measured against: materialises S and P,
/// fp32 accumulation, P and the output rounded to the dtype.
ReferenceResult plain_forward(const AttentionSpec& spec, const ForwardArguments& arguments);

/// Passes if the error against fp64 is at most twice the plain implementation's (or one rounding of the
/// output type, where the plain one is exact), in the maximum and in the root mean square; -inf and 0 rows
/// must match exactly.
struct Verdict {
  bool ok = false;
  double error = 0, allowed = 0;  // maximum absolute error of out
  double rms_error = 0, rms_allowed = 0;
  double lse_error = 0, lse_allowed = 0;  // 0 without lse
  int64_t wrong_non_finite = 0;           // elements that are NaN or inf where the reference is not
  std::string message;                    // the worst element, its place, got and expected
};
Verdict compare_forward(const AttentionSpec& spec, const ForwardArguments& arguments);

/// Both answers, to compare several outputs for the same inputs with.
struct ForwardAnswers {
  ReferenceResult reference, plain;
};
ForwardAnswers forward_answers(const AttentionSpec& spec, const ForwardArguments& arguments);
Verdict compare_forward(const AttentionSpec& spec, const ForwardArguments& arguments,
                        const ForwardAnswers& answers);

/// fp16, bf16, fp32 to and from double, rounding to nearest even.
double load_element(const void* data, DataType type, int64_t index);
void store_element(void* data, DataType type, int64_t index, double value);

}  // namespace tilewright
