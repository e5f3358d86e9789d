#include "cli/integer_array.h"

#include <random>
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

DrawnBlocks::Lists DrawnBlocks::draw(const Mask::Blocks& size, const LaunchShape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  Lists lists;
  const int64_t of_queries = (shape.seqlen_q + size.m - 1) / size.m,
                of_keys = (shape.seqlen_kv + size.n - 1) / size.n;
  lists.rows_of_head = of_queries + 1;
  for (int64_t head = 0; head < shape.batch * shape.heads; ++head) {
    for (int64_t row = 0; row < of_queries; ++row) {
      lists.rows.push_back(static_cast<int32_t>(lists.columns.size()));
      for (int64_t column = 0; column < of_keys; ++column)
        if (random() % 2) lists.columns.push_back(static_cast<int32_t>(column));
    }
    lists.rows.push_back(static_cast<int32_t>(lists.columns.size()));
  }
  return lists;
}

DrawnBlocks::DrawnBlocks(Runtime& runtime, Lists lists, const LaunchShape& shape)
    : rows(runtime, std::move(lists.rows), {shape.batch, shape.heads, lists.rows_of_head}),
      columns(runtime, lists.columns, {static_cast<int64_t>(lists.columns.size())}) {}

DrawnBlocks::DrawnBlocks(Runtime& runtime, const Mask::Blocks& size, const LaunchShape& shape, uint64_t seed)
    : DrawnBlocks(runtime, draw(size, shape, seed), shape) {}

}  // namespace tilewright::cli
