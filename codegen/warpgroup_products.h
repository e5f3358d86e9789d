// The warpgroup products (wgmma) of one kernel, emitted for the one shape that its schedule uses.
#pragma once

#include <vector>

#include "codegen/emit.h"
#include "codegen/template_items.h"

namespace tilewright {

/// The primitives, with the body for `backend`
///   multiply_query_keys(scores, query, keys):                    S (64 x block_n) = Q K^T, all of
///   head_dim.qk multiply_probabilities_values(output, probabilities, values): O (64 x head_dim.v) += P V,
///   all of block_n wait_scores<groups>(scores), wait_output(output, probabilities[, scores])
/// Operands in shared memory are low words of descriptors.
std::vector<TemplateItem> warpgroup_products(const AttentionSpec& spec, const Schedule& schedule,
                                             Backend backend);

}  // namespace tilewright
