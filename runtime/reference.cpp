#include "runtime/reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <limits>
#include <thread>

#include "runtime/arguments.h"

namespace tilewright {
namespace {

constexpr int batch = 0, sequence = 1, head = 2, element = 3;

/// The keys that a query row sees: first to last - 1.
struct Visible {
  int64_t first, last;
};

Visible visible_keys(const Mask& mask, int64_t row, int64_t seqlen_q, int64_t seqlen_kv) {
  int64_t first = 0, last = seqlen_kv;
  const int64_t position = mask.kind == Mask::Kind::causal_top_left ? row : row + seqlen_kv - seqlen_q;
  switch (mask.kind) {
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

double rounded(DataType type, double value) {
  unsigned char bytes[8];
  store_element(bytes, type, 0, value);
  return load_element(bytes, type, 0);
}

/// Attention of one head in the arithmetic of `Number`: double is the reference, float the plain
/// implementation, which rounds P and the output to the spec's types.
template <typename Number>
class HeadProblem {
 public:
  HeadProblem(const AttentionSpec& spec, const ForwardArguments& arguments, int64_t b, int64_t h)
      : spec_(spec),
        seqlen_q_(arguments.q.shape[sequence]),
        seqlen_kv_(arguments.k.shape[sequence]),
        scale_(static_cast<Number>(
            arguments.softmax_scale.value_or(spec.softmax_scale_at_launch ? 0 : spec.scale()))),
        q_(head_of<Number>(spec, arguments.q, b, h, false)),
        k_(head_of<Number>(spec, arguments.k, b, h / spec.gqa_ratio, true)),
        v_(head_of<Number>(spec, arguments.v, b, h / spec.gqa_ratio, false)),
        scores_(seqlen_kv_) {}

  /// `out` has head_dim.v elements.
  void row(int64_t i, double* out, double* lse) {
    const int64_t columns = spec_.head_dim.v;
    std::fill(out, out + columns, 0.0);
    *lse = -std::numeric_limits<double>::infinity();
    const Visible keys = visible_keys(spec_.mask, i, seqlen_q_, seqlen_kv_);
    if (keys.first >= keys.last) return;
    const Number maximum = score(i, keys);
    Number sum = 0;
    for (int64_t j = keys.first; j < keys.last; ++j) sum += scores_[j] = std::exp(scores_[j] - maximum);
    *lse = maximum + std::log(sum);
    std::vector<Number> total(columns, Number{0});
    for (int64_t j = keys.first; j < keys.last; ++j) {
      Number weight = scores_[j] / sum;
      if constexpr (!exact) weight = static_cast<Number>(rounded(spec_.dtype.kv, weight));
      const Number* value = v_.data() + j * columns;
      for (int64_t d = 0; d < columns; ++d) total[d] += weight * value[d];
    }
    for (int64_t d = 0; d < columns; ++d) out[d] = exact ? total[d] : rounded(spec_.dtype.out, total[d]);
  }

 private:
  static constexpr bool exact = std::is_same_v<Number, double>;

  /// Fills in the scores of the visible keys and returns the largest.
  Number score(int64_t i, Visible keys) {
    std::fill(scores_.begin() + keys.first, scores_.begin() + keys.last, Number{0});
    // Along the keys, so that the compiler may use vectors without changing the order of any sum.
    for (int64_t d = 0; d < spec_.head_dim.qk; ++d) {
      const Number query = q_[i * spec_.head_dim.qk + d];
      const Number* key = k_.data() + d * seqlen_kv_;
      for (int64_t j = keys.first; j < keys.last; ++j) scores_[j] += query * key[j];
    }
    Number maximum = -std::numeric_limits<Number>::infinity();
    const auto cap = static_cast<Number>(spec_.softcap);
    for (int64_t j = keys.first; j < keys.last; ++j) {
      scores_[j] *= scale_;
      if (cap != 0) scores_[j] = cap * std::tanh(scores_[j] / cap);
      maximum = std::max(maximum, scores_[j]);
    }
    return maximum;
  }

  const AttentionSpec& spec_;
  int64_t seqlen_q_, seqlen_kv_;
  Number scale_;
  std::vector<Number> q_, k_, v_, scores_;
};

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

template <typename Number>
ReferenceResult forward(const AttentionSpec& spec, const ForwardArguments& arguments) {
  check_arguments(spec, arguments);
  const auto& shape = arguments.q.shape;
  const int64_t heads = shape[head], rows = shape[sequence], columns = spec.head_dim.v;
  ReferenceResult result;
  result.out.resize(shape[batch] * rows * heads * columns);
  result.lse.resize(shape[batch] * heads * rows);
  in_parallel(shape[batch] * heads, [&](int64_t index) {
    const int64_t b = index / heads, h = index % heads;
    HeadProblem<Number> problem(spec, arguments, b, h);
    for (int64_t i = 0; i < rows; ++i)
      problem.row(i, &result.out[((b * rows + i) * heads + h) * columns], &result.lse[index * rows + i]);
  });
  return result;
}

}  // namespace

ReferenceResult reference_forward(const AttentionSpec& spec, const ForwardArguments& arguments) {
  return forward<double>(spec, arguments);
}

ReferenceResult plain_forward(const AttentionSpec& spec, const ForwardArguments& arguments) {
  return forward<float>(spec, arguments);
}

}  // namespace tilewright
