#include "runtime/reference.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "runtime/arguments.h"
#include "runtime/block_list.h"
#include "runtime/dropout.h"
#include "runtime/expression_arguments.h"
#include "runtime/packed.h"
#include "runtime/reference_parts.h"

namespace tilewright {
namespace {

using namespace reference;

/// Attention of one head in the arithmetic of `Number`: double is the reference, float the plain
/// implementation, which rounds P and the output to the spec's types.
template <typename Number>
class HeadProblem {
 public:
  HeadProblem(const AttentionSpec& spec, const ForwardArguments& arguments, int64_t b, int64_t h,
              int64_t first_batch)
      : spec_(spec),
        seqlen_q_(arguments.q.shape[sequence]),
        seqlen_kv_(arguments.k.shape[sequence]),
        scale_(static_cast<Number>(
            arguments.softmax_scale.value_or(spec.softmax_scale_at_launch ? 0 : spec.scale()))),
        q_(head_of<Number>(spec, arguments.q, b, h, false)),
        k_(head_of<Number>(spec, arguments.k, b, h / spec.gqa_ratio, true)),
        v_(head_of<Number>(spec, arguments.v, b, h / spec.gqa_ratio, false)),
        scores_(seqlen_kv_),
        dropout_(spec, arguments.dropout, (first_batch + b) * arguments.q.shape[head] + h) {
    if (spec.sinks)
      sink_ = static_cast<Number>(load_element(arguments.sinks->data, arguments.sinks->dtype, h));
    if (has_expressions(spec)) values_.emplace(spec, arguments, first_batch + b, h);
    if (spec.mask.blocks)
      listed_ = [&, b, h](int64_t row) { return listed_keys(spec, arguments, b, h, row); };
  }

  /// `out` has head_dim.v elements.
  void row(int64_t i, double* out, double* lse) {
    const int64_t columns = spec_.head_dim.v;
    std::fill(out, out + columns, 0.0);
    *lse = sink_;
    const bool all = values_ && values_->has_mask();  // or as the expression says
    const Visible keys = all ? Visible{0, seqlen_kv_} : visible_keys(spec_.mask, i, seqlen_q_, seqlen_kv_);
    if (keys.first >= keys.last) return;
    const Number maximum = std::max(score(i, keys), sink_);
    if (maximum == -std::numeric_limits<Number>::infinity()) return;
    Number sum = spec_.sinks ? std::exp(sink_ - maximum) : 0;
    for (int64_t j = keys.first; j < keys.last; ++j) sum += scores_[j] = std::exp(scores_[j] - maximum);
    *lse = maximum + std::log(sum);
    std::vector<Number> total(columns, Number{0});
    for (int64_t j = keys.first; j < keys.last; ++j) {
      Number weight = scores_[j] / sum * dropout_.factor(i, j);
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
    const std::vector<bool> listed = listed_ ? listed_(i) : std::vector<bool>();
    const auto cap = static_cast<Number>(spec_.softcap);
    for (int64_t j = keys.first; j < keys.last; ++j) {
      scores_[j] *= scale_;
      if (cap != 0) scores_[j] = cap * std::tanh(scores_[j] / cap);
      if (values_ && values_->has_score()) scores_[j] = static_cast<Number>(values_->score(i, j, scores_[j]));
      if (values_ && values_->has_mask() && !values_->is_visible(i, j))
        scores_[j] = -std::numeric_limits<Number>::infinity();
      if (listed_ && !listed[j]) scores_[j] = -std::numeric_limits<Number>::infinity();
      maximum = std::max(maximum, scores_[j]);
    }
    return maximum;
  }

  const AttentionSpec& spec_;
  int64_t seqlen_q_, seqlen_kv_;
  Number scale_;
  Number sink_ = -std::numeric_limits<Number>::infinity();  // the row's sum begins with it
  std::vector<Number> q_, k_, v_, scores_;
  HeadDropout<Number> dropout_;
  std::optional<ExpressionValues> values_;
  std::function<std::vector<bool>(int64_t)> listed_;  // the keys that mask.blocks shows to a row; empty: all
};

/// `first_batch`: what the arguments' first batch counts as, for dropout and expressions.
template <typename Number>
ReferenceResult forward_of_batches(const AttentionSpec& spec, const ForwardArguments& arguments,
                                   int64_t first_batch) {
  const auto& shape = arguments.q.shape;
  const int64_t heads = shape[head], rows = shape[sequence], columns = spec.head_dim.v;
  ReferenceResult result;
  result.out.resize(shape[batch] * rows * heads * columns);
  result.lse.resize(shape[batch] * heads * rows);
  in_parallel(shape[batch] * heads, [&](int64_t index) {
    const int64_t b = index / heads, h = index % heads;
    HeadProblem<Number> problem(spec, arguments, b, h, first_batch);
    for (int64_t i = 0; i < rows; ++i)
      problem.row(i, &result.out[((b * rows + i) * heads + h) * columns], &result.lse[index * rows + i]);
  });
  return result;
}

/// Each sequence on its own.
template <typename Number>
ReferenceResult packed_forward(AttentionSpec spec, const ForwardArguments& given) {
  const ForwardArguments arguments = with_batch_of_one(given);
  const std::vector<PackedSequence> sequences = packed_sequences(given);
  const auto& shape = arguments.q.shape;
  const int64_t heads = shape[head], rows = shape[sequence], columns = spec.head_dim.v;
  ReferenceResult result;
  result.out.resize(rows * heads * columns);
  result.lse.resize(heads * rows);
  result.live.resize(rows);
  spec.layout = Layout::bshd;
  spec.lse = false;
  int64_t index = 0;
  for (const PackedSequence& part : sequences) {
    const ReferenceResult own =
        forward_of_batches<Number>(spec, one_sequence(spec, arguments, part), index++);
    std::copy(own.out.begin(), own.out.end(), result.out.begin() + part.first_query * heads * columns);
    for (int64_t h = 0; h < heads; ++h)
      std::copy_n(own.lse.begin() + h * part.queries, part.queries,
                  result.lse.begin() + h * rows + part.first_query);
    std::fill_n(result.live.begin() + part.first_query, part.queries, true);
  }
  return result;
}

template <typename Number>
ReferenceResult forward(const AttentionSpec& spec, const ForwardArguments& arguments) {
  check_arguments(spec, arguments);
  if (spec.layout == Layout::packed) return packed_forward<Number>(spec, arguments);
  return forward_of_batches<Number>(spec, arguments, 0);
}

}  // namespace

ReferenceResult reference_forward(const AttentionSpec& spec, const ForwardArguments& arguments) {
  return forward<double>(spec, arguments);
}

ReferenceResult plain_forward(const AttentionSpec& spec, const ForwardArguments& arguments) {
  return forward<float>(spec, arguments);
}

}  // namespace tilewright
