// One backward launch over sequences of different lengths, its inputs made, its outputs poisoned and guarded,
// and its answer checked.
#pragma once

#include "tests/support/backward_case.h"
#include "tests/support/packed_case.h"

namespace tilewright::test {

/// `packed.spec` is the text of the backward spec. The output and LSE that it takes are those of the plain
/// forward implementation; rows of no sequence hold the filler in all inputs. A wrong answer, or a byte
/// changed in rows of no sequence, is a failure of the current test. `adjust` also gets 'd', the gradient of
/// the output. All of `launches` must give the same bits.
BackwardResult run_packed_backward(Runtime& runtime, const PackedCase& packed, int launches = 1);

}  // namespace tilewright::test
