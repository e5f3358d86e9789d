#include "runtime/tensor_map.h"

#include <bit>
#include <string>
#include <utility>

#include "codegen/error.h"
#include "runtime/arguments.h"
#include "runtime/driver.h"

namespace tilewright {

TensorMapRequest describe_tensor_map(const AttentionSpec& spec, const char* name, const TensorView& view,
                                     int box_rows, void* stand_in, int pack_group) {
  struct Dimension {
    int in_view;
    const char* name;
  };
  Dimension dimensions[] = {{3, "head_dim"}, {1, "sequence"}, {2, "head"}, {0, "batch"}};
  if (pack_group > 1) std::swap(dimensions[1], dimensions[2]);
  int64_t strides[4];
  effective_strides(spec, view, strides);
  TensorMapRequest request{.name = name, .data = view.data, .type = view.dtype};
  request.box_rows = static_cast<uint32_t>(box_rows / pack_group);
  request.box_heads = static_cast<uint32_t>(pack_group);
  bool empty = false;
  for (int i = 0; i < 4; ++i) {
    request.sizes[i] = static_cast<uint64_t>(view.shape[dimensions[i].in_view]);
    empty = empty || request.sizes[i] == 0;
  }
  if (empty) {
    request.data = stand_in;
    for (int i = 1; i < 4; ++i) request.sizes[i] = 1;
  }
  const uint64_t row_bytes = request.sizes[0] * size_of(view.dtype);
  for (int i = 1; i < 4; ++i) {
    if (request.sizes[i] == 1) {
      request.strides[i - 1] = row_bytes;
      continue;
    }
    // In elements first: in bytes it could wrap.
    const int64_t stride = strides[dimensions[i].in_view];
    if (stride >= (int64_t{1} << 40) / size_of(view.dtype))
      throw Error(ErrorKind::usage, std::string(name) + ": " + dimensions[i].name + " stride is " +
                                        std::to_string(stride) +
                                        " elements; a kernel of the sm90 family takes strides below 2^40 "
                                        "bytes, one of a spec with `blocks: {family: sm80}` takes any");
    request.strides[i - 1] = static_cast<uint64_t>(stride) * size_of(view.dtype);
  }
  return request;
}

TensorMap encode_tensor_map(const TensorMapRequest& request) {
  CUtensorMap encoded;
  const cuuint64_t sizes[] = {request.sizes[0], request.sizes[1], request.sizes[2], request.sizes[3]};
  const cuuint64_t strides[] = {request.strides[0], request.strides[1], request.strides[2]};
  const bool folded = request.box_heads > 1;
  const cuuint32_t box[] = {TensorMapRequest::box_columns, folded ? request.box_heads : request.box_rows,
                            folded ? request.box_rows : 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  const CUresult result = driver().tensor_map_encode(
      &encoded,
      request.type == DataType::fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
      request.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return std::bit_cast<TensorMap>(encoded);
  std::string action = std::string("launch the kernel: the driver refused the tensor map of ") + request.name;
  auto list = [&](const char* what, const cuuint64_t* values, int count) {
    action += what;
    for (int i = 0; i < count; ++i) action += (i ? ", " : "") + std::to_string(values[i]);
  };
  list(" (sizes ", sizes, 4);
  list("; strides in bytes ", strides, 3);
  check(result, (action + ")").c_str());
  return {};
}

}  // namespace tilewright
