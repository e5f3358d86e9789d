// One backward launch with its inputs made, its outputs and workspace poisoned and guarded, and its answer
// checked.
#pragma once

#include "runtime/reference_backward.h"
#include "tests/support/attention_case.h"

namespace tilewright::test {

struct BackwardResult {
  AttentionSpec spec;
  GuardedTensor q, k, v, out, lse, d_out, d_lse, dq, dk, dv;
  GuardedTensor sinks, d_sinks;  // if the spec has sinks
  GuardedTensor d_bias;          // if the spec asks for it
  BackwardVerdict verdict;
  int64_t workspace_bytes = 0;
};

/// Runs `pass: backward` for the case. `attention.spec` is the text of the backward spec. The output and LSE
/// that it takes are those of the plain forward implementation; the gradients of the output ('d') and, when
/// the spec says `lse: true`, of LSE ('l') are drawn like inputs, sinks as fp32. A wrong answer is a failure
/// of the current test; `check` false leaves the comparison out. All of `launches` must give the same bits.
BackwardResult run_backward(Runtime& runtime, const AttentionCase& attention, bool check = true,
                            int launches = 1);

}  // namespace tilewright::test
