// The caller's list of blocks of keys (mask.blocks).
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/forward_parameters.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// Throws Error(usage) unless the list's arrays fit the spec and q. `arguments` have rank 4. What is in them,
/// on the device, is not looked at: kernels pass over blocks that do not exist.
void check_block_list(const AttentionSpec& spec, const ForwardArguments& arguments);

/// After check_block_list.
void set_block_list(const ForwardArguments& arguments, ForwardParameters& parameters);

/// Of each key, whether the list shows it to the query row. Of host memory.
std::vector<bool> listed_keys(const AttentionSpec& spec, const ForwardArguments& arguments, int64_t batch,
                              int64_t head, int64_t row);

}  // namespace tilewright
