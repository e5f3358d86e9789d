// Tensor maps: how the copy engine of the sm90 family sees q, k and v.
#pragma once

#include <cstdint>

#include "runtime/forward_parameters.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// A tensor of rank 4, innermost dimension first: columns (head_dim), rows (sequence), heads, batch. Boxes
/// are 64 columns, 128 bytes, by `box_rows` rows of one head; what lies outside the tensor is loaded as
/// zeros. Where heads are folded into rows: columns, heads, rows, batch, and boxes of `box_heads` heads.
struct TensorMapRequest {
  static constexpr uint32_t box_columns = 64;

  const char* name = "";  // "q": for errors
  void* data = nullptr;   // 16-byte aligned
  DataType type = DataType::bf16;
  uint64_t sizes[4] = {};    // elements, 1 to 2^32
  uint64_t strides[3] = {};  // bytes, of rows, heads and batches: multiples of 16 below 2^40
  uint32_t box_rows = 0;     // up to 256
  uint32_t box_heads = 1;
};

/// `view` as check_arguments lets it pass, in the order batch, sequence, heads, head_dim. Strides of size-1
/// dimensions, which are never stepped over, become valid ones. A tensor without elements, of which a kernel
/// loads nothing, becomes one row at `stand_in`: a map has no size 0. Throws Error(usage) for a stride of
/// 2^40 bytes or more. With `pack_group` > 1 so many heads are folded into the `box_rows` rows.
TensorMapRequest describe_tensor_map(const AttentionSpec& spec, const char* name, const TensorView& view,
                                     int box_rows, void* stand_in, int pack_group = 1);

/// Asks the CUDA driver. Throws Error(device) if it refuses.
TensorMap encode_tensor_map(const TensorMapRequest& request);

}  // namespace tilewright
