// The warpgroup products (wgmma) of one backward kernel of the sm90 family.
#pragma once

#include <vector>

#include "codegen/emit.h"
#include "codegen/template_items.h"

namespace tilewright {

/// The primitives, with the body for `backend`
///   multiply_scores(scores, keys, queries):       S^T (64 x score_rows) = K Q^T
///   multiply_dp(dp, values, gradients):           dP^T (64 x score_rows) = V dO^T
///   multiply_dv(dv, probabilities, gradients):    dV (64 x dv_columns) += P^T dO
///   multiply_dk(dk, ds, queries):                 dK (64 x dk_columns) += dS^T Q
///   multiply_dq(dq, ds, keys):                    dQ (64 x dq_columns) = dS K
/// each a group of its own. Operands in shared memory are low words of descriptors; where consumers share the
/// columns, their last operand comes in up to two parts.
std::vector<TemplateItem> backward_products(const AttentionSpec& spec, const Schedule& schedule,
                                            Backend backend);

}  // namespace tilewright
