// The gradients that the backward pass must give, computed slowly on the CPU, and how close it must come.
#pragma once

#include <vector>

#include "runtime/backward_arguments.h"
#include "runtime/reference.h"

namespace tilewright {

/// Contiguous; dq, dk and dv in the order batch, sequence, heads, head_dim. Layout packed: batch 1.
struct ReferenceGradients {
  std::vector<double> dq, dk, dv;
  std::vector<double> d_sinks;    // of each query head, if the spec has sinks
  std::vector<double> d_bias;     // as the launch's, if the spec asks for it; from zeros on
  std::vector<char> row_sees;     // [batch, sequence, heads]: the row sees a key
  std::vector<char> key_is_seen;  // [batch, sequence, KV heads]: some row of some head sees the key
  /// Layout packed: as these, whether a sequence has the row or the key; empty: all.
  std::vector<char> live_rows, live_keys;
};

/// Everything in fp64 from the stored (rounded) q, k, v, d_out, d_lse of `arguments` (host memory): the
/// output and LSE are computed anew, those in the arguments are not read.
ReferenceGradients reference_backward(const AttentionSpec& spec, const BackwardArguments& arguments);

/// The plain implementation in the spec's dtype that the tolerance is measured against: materialises P and dS
/// from the output and LSE of the arguments, fp32 accumulation, P, dS and the gradients rounded to the dtype.
ReferenceGradients plain_backward(const AttentionSpec& spec, const BackwardArguments& arguments);

/// How far one gradient is from fp64.
struct GradientError {
  double error = 0, allowed = 0;  // maximum absolute
  double rms_error = 0, rms_allowed = 0;
  bool ok() const { return error <= allowed && rms_error <= rms_allowed; }
};

/// Passes if the error of every gradient is at most twice the plain implementation's (or one rounding of its
/// type, where the plain one is exact), in the maximum and in the root mean square. Rows of dQ that see no
/// key, and rows of dK and dV that no query sees, must be exactly 0. d_bias has been added to zeros.
struct BackwardVerdict {
  bool ok = false;
  GradientError dq, dk, dv;
  GradientError d_sinks, d_bias;  // zeros if they were not asked for
  int64_t wrong_non_finite = 0;   // elements that are NaN or inf where the reference is not
  int64_t wrong_zero_rows = 0;    // elements that are not 0 where nobody sees anything
  std::string message;            // the worst element, its place, got and expected
};
BackwardVerdict compare_backward(const AttentionSpec& spec, const BackwardArguments& arguments);

/// Both answers, to compare several results for the same inputs with.
struct BackwardAnswers {
  ReferenceGradients reference, plain;
};
BackwardAnswers backward_answers(const AttentionSpec& spec, const BackwardArguments& arguments);
BackwardVerdict compare_backward(const AttentionSpec& spec, const BackwardArguments& arguments,
                                 const BackwardAnswers& answers);

}  // namespace tilewright
