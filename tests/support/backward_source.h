// Launches of one backward source, as it was emitted or with a defect in its text.
#pragma once

#include <string>

#include "runtime/device.h"
#include "tests/support/backward_case.h"

namespace tilewright::test {

struct SourceOutcome {
  std::string fault;  // the simulator's, "wrong answer", or nothing
  // Of dQ, dK, dV and the sums of dQ in fp32, which rounding hides, if there was no fault of the simulator's.
  std::string bits;
};

/// One launch on the simulator: one batch, one KV head, bf16, normal inputs that `seed` alone decides, as it
/// does the order of what is asynchronous; `inputs` decides the inputs if it is given. `spec` is of equal
/// head dims.
SourceOutcome launch_source(const AttentionSpec& spec, const Target& target, const Source& source,
                            uint64_t seed, int64_t rows = 150, int64_t keys = 130,
                            std::optional<uint64_t> inputs = std::nullopt);

/// Of the schedule that the spec gets.
Source source_of(const AttentionSpec& spec, const Target& target);

}  // namespace tilewright::test
