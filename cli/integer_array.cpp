#include "cli/integer_array.h"

#include <utility>

namespace tilewright::cli {

IntegerArray::IntegerArray(Runtime& runtime, std::vector<int32_t> numbers, std::vector<int64_t> shape)
    : numbers_(std::move(numbers)), shape_(std::move(shape)), buffer_(runtime, 4 * numbers_.size()) {
  buffer_.upload(numbers_.data());
}

IntegerArray sequence_starts(Runtime& runtime, const std::vector<int64_t>& lengths) {
  std::vector<int32_t> starts = {0};
  for (int64_t length : lengths) starts.push_back(starts.back() + static_cast<int32_t>(length));
  const auto count = static_cast<int64_t>(starts.size());
  return IntegerArray(runtime, std::move(starts), {count});
}

DrawnBlocks::DrawnBlocks(Runtime& runtime, BlockLists lists, const LaunchShape& shape)
    : rows(runtime, std::move(lists.rows), {shape.batch, shape.heads, lists.rows_of_head}),
      columns(runtime, lists.columns, {static_cast<int64_t>(lists.columns.size())}) {}

DrawnBlocks::DrawnBlocks(Runtime& runtime, const Mask::Blocks& size, const LaunchShape& shape, uint64_t seed)
    : DrawnBlocks(runtime, draw_block_lists(size, shape, seed), shape) {}

}  // namespace tilewright::cli
