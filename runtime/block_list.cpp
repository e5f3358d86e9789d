#include "runtime/block_list.h"

#include <algorithm>
#include <string>

#include "codegen/error.h"

namespace tilewright {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::usage, message);
}

std::string text(int64_t value) {
  return std::to_string(value);
}

void check_array(const char* name, const TensorView& view, size_t rank) {
  if (view.dtype != DataType::int32)
    refuse(std::string(name) + " is " + std::string(name_of(view.dtype)) + ", expected int32");
  if (view.shape.size() != rank)
    refuse(std::string(name) + " has " + text(static_cast<int64_t>(view.shape.size())) +
           " dimensions, expected " + text(static_cast<int64_t>(rank)) +
           (rank == 3 ? " (batch or 1, heads or 1, blocks of queries + 1)" : ""));
  if (!view.strides.empty() && view.strides.size() != rank)
    refuse(std::string(name) + " has " + text(static_cast<int64_t>(view.strides.size())) +
           " strides, expected " + text(static_cast<int64_t>(rank)) + " or none (contiguous)");
  if (!view.strides.empty() && view.shape.back() > 1 && view.strides.back() != 1)
    refuse(std::string(name) + ": its last stride is " + text(view.strides.back()) + ", expected 1");
  bool empty = false;
  for (int64_t size : view.shape) empty = empty || size == 0;
  if (!empty && !view.data) refuse(std::string(name) + ": data is null");
  if (reinterpret_cast<uintptr_t>(view.data) % sizeof(int32_t) != 0)
    refuse(std::string(name) + ": data is not aligned to 4 bytes");
}

struct RowStrides {
  int64_t batch, head;
};

/// 0 for a dimension that is the same for all.
RowStrides row_strides(const TensorView& rows) {
  const auto stride = [&](int dimension, int64_t contiguous) {
    if (rows.shape[dimension] == 1) return int64_t{0};
    return rows.strides.empty() ? contiguous : rows.strides[dimension];
  };
  return {stride(0, rows.shape[1] * rows.shape[2]), stride(1, rows.shape[2])};
}

}  // namespace

void check_block_list(const AttentionSpec& spec, const ForwardArguments& arguments) {
  const struct {
    const char* name;
    const std::optional<TensorView>& view;
    size_t rank;
  } arrays[] = {{"block_rows", arguments.block_rows, 3}, {"block_columns", arguments.block_columns, 1}};
  for (const auto& [name, view, rank] : arrays) {
    if (!spec.mask.blocks && view)
      refuse(std::string(name) + " was given, but the spec's mask has no blocks");
    if (spec.mask.blocks && !view) refuse(std::string(name) + " is missing: the spec's mask has blocks");
    if (view) check_array(name, *view, rank);
  }
  if (!spec.mask.blocks) return;
  const TensorView& rows = *arguments.block_rows;
  const auto& q = arguments.q.shape;
  const int64_t blocks = (q[1] + spec.mask.blocks->m - 1) / spec.mask.blocks->m;
  const auto check_size = [&](int dimension, const char* what, int64_t expected, bool or_one) {
    if (rows.shape[dimension] == expected || (or_one && rows.shape[dimension] == 1)) return;
    refuse(std::string("block_rows: ") + what + " dimension is " + text(rows.shape[dimension]) +
           ", expected " + text(expected) +
           (or_one ? " or 1" : " (one more than there are blocks of queries)"));
  };
  check_size(0, "batch", q[0], true);
  check_size(1, "head", q[2], true);
  check_size(2, "last", blocks + 1, false);
  const auto [batch, head] = row_strides(rows);
  if (batch < 0 || head < 0 || batch > INT32_MAX || head > INT32_MAX)
    refuse("block_rows: a stride is " + text(std::max(batch, head)) + ", expected 0 to 2147483647");
  if (arguments.block_columns->shape[0] > INT32_MAX)
    refuse("block_columns has " + text(arguments.block_columns->shape[0]) +
           " elements, expected at most 2147483647");
}

void set_block_list(const ForwardArguments& arguments, ForwardParameters& parameters) {
  if (!arguments.block_rows) return;
  const auto [batch, head] = row_strides(*arguments.block_rows);
  parameters.block_rows = static_cast<const int*>(arguments.block_rows->data);
  parameters.block_columns = static_cast<const int*>(arguments.block_columns->data);
  parameters.block_entries = static_cast<int>(arguments.block_columns->shape[0]);
  parameters.block_batch_stride = static_cast<int>(batch);
  parameters.block_head_stride = static_cast<int>(head);
}

std::vector<bool> listed_keys(const AttentionSpec& spec, const ForwardArguments& arguments, int64_t batch,
                              int64_t head, int64_t row) {
  const auto [batch_stride, head_stride] = row_strides(*arguments.block_rows);
  const auto [m, n] = *spec.mask.blocks;
  const auto* rows = static_cast<const int32_t*>(arguments.block_rows->data) + batch * batch_stride +
                     head * head_stride + row / m;
  const auto* columns = static_cast<const int32_t*>(arguments.block_columns->data);
  const int64_t keys = arguments.k.shape[1], entries = arguments.block_columns->shape[0];
  std::vector<bool> listed(keys);
  for (int64_t i = std::max<int64_t>(rows[0], 0); i < std::min<int64_t>(rows[1], entries); ++i)
    for (int64_t key = int64_t{columns[i]} * n; key < (int64_t{columns[i]} + 1) * n; ++key)
      if (key >= 0 && key < keys) listed[key] = true;
  return listed;
}

}  // namespace tilewright
