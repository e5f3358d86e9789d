// What the references of both passes share: visible keys, heads as plain arrays, work on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "runtime/arguments.h"
#include "runtime/reference.h"

namespace tilewright::reference {

inline constexpr int batch = 0, sequence = 1, head = 2, element = 3;

/// The keys that a query row sees: first to last - 1.
struct Visible {
  int64_t first, last;
};

inline Visible visible_keys(const Mask& mask, int64_t row, int64_t seqlen_q, int64_t seqlen_kv) {
  int64_t first = 0, last = seqlen_kv;
  const int64_t position = mask.kind == Mask::Kind::causal_top_left ? row : row + seqlen_kv - seqlen_q;
  switch (mask.kind) {
    case Mask::Kind::expression:
      throw Error(ErrorKind::spec, "the reference does not take mask expressions");
    case Mask::Kind::none:
      break;
    case Mask::Kind::causal:
    case Mask::Kind::causal_top_left:
      last = position + 1;
      break;
    case Mask::Kind::window:
      if (mask.left != Mask::unlimited) first = position - mask.left;
      if (mask.right != Mask::unlimited) last = position + mask.right + 1;
      break;
  }
  return {std::max<int64_t>(first, 0), std::min(last, seqlen_kv)};
}

/// One head of a tensor as contiguous numbers: [sequence][element], or [element][sequence] when transposed.
template <typename Number>
std::vector<Number> head_of(const AttentionSpec& spec, const TensorView& view, int64_t b, int64_t h,
                            bool transposed) {
  int64_t strides[4];
  effective_strides(spec, view, strides);
  const int64_t rows = view.shape[sequence], columns = view.shape[element];
  std::vector<Number> numbers(rows * columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t d = 0; d < columns; ++d) {
      int64_t offset = b * strides[batch] + i * strides[sequence] + h * strides[head] + d * strides[element];
      numbers[transposed ? d * rows + i : i * columns + d] =
          static_cast<Number>(load_element(view.data, view.dtype, offset));
    }
  return numbers;
}

inline double rounded(DataType type, double value) {
  unsigned char bytes[8];
  store_element(bytes, type, 0, value);
  return load_element(bytes, type, 0);
}

/// Calls `work(i)` for every i below `count`, on as many threads as there are cores. An exception reaches the
/// caller.
template <typename Work>
void in_parallel(int64_t count, const Work& work) {
  std::atomic<int64_t> next{0};
  auto take = [&] {
    for (int64_t i; (i = next++) < count;) work(i);
  };
  const int64_t workers = std::min<int64_t>(count, std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::future<void>> running;
  for (int64_t i = 1; i < workers; ++i) running.push_back(std::async(std::launch::async, take));
  take();
  for (auto& future : running) future.get();
}

}  // namespace tilewright::reference
