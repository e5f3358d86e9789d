#include "runtime/reference_backward.h"

#include <cmath>
#include <limits>
#include <mutex>

#include "runtime/dropout.h"
#include "runtime/expression_arguments.h"
#include "runtime/packed.h"
#include "runtime/reference_parts.h"

namespace tilewright {
namespace {

using namespace reference;

/// The backward pass of one KV head in the arithmetic of `Number`: double is the reference, float the plain
/// implementation, which rounds P, dS and the gradients to the spec's type.
template <typename Number>
class GroupProblem {
 public:
  static constexpr bool exact = std::is_same_v<Number, double>;
  static constexpr Number infinitely_little = -std::numeric_limits<Number>::infinity();

  GroupProblem(const AttentionSpec& spec, const BackwardArguments& arguments, int64_t b, int64_t kv_head,
               int64_t first_batch)
      : spec_(spec),
        arguments_(arguments),
        batch_(b),
        first_batch_(first_batch),
        kv_head_(kv_head),
        seqlen_q_(arguments.q.shape[sequence]),
        seqlen_kv_(arguments.k.shape[sequence]),
        scale_(static_cast<Number>(
            arguments.softmax_scale.value_or(spec.softmax_scale_at_launch ? 0 : spec.scale()))),
        k_(head_of<Number>(spec, arguments.k, b, kv_head, true)),
        v_(head_of<Number>(spec, arguments.v, b, kv_head, true)),
        k_rows_(head_of<Number>(spec, arguments.k, b, kv_head, false)),
        dk_(k_.size()),
        dv_(v_.size()),
        scores_(seqlen_kv_),
        gradients_(seqlen_kv_),
        slopes_(seqlen_kv_) {}

  /// Several at a time: `bias_mutex` guards what they share.
  void run(ReferenceGradients& result, std::mutex& bias_mutex) {
    const int64_t heads = arguments_.q.shape[head], kv_heads = arguments_.k.shape[head];
    key_is_seen_ = &result.key_is_seen[batch_ * seqlen_kv_ * kv_heads + kv_head_];
    for (int64_t h = kv_head_ * spec_.gqa_ratio; h < (kv_head_ + 1) * spec_.gqa_ratio; ++h) {
      const auto q = head_of<Number>(spec_, arguments_.q, batch_, h, false);
      const auto d_out = head_of<Number>(spec_, arguments_.d_out, batch_, h, false);
      const auto out =
          exact ? std::vector<Number>() : head_of<Number>(spec_, arguments_.out, batch_, h, false);
      if (spec_.sinks)
        sink_ = static_cast<Number>(load_element(arguments_.sinks->data, arguments_.sinks->dtype, h));
      d_sink_ = 0;
      if (has_expressions(spec_)) values_.emplace(spec_, forward_, first_batch_ + batch_, h);
      for (int64_t i = 0; i < seqlen_q_; ++i) {
        const int64_t place = (batch_ * seqlen_q_ + i) * heads + h;
        std::fill(bias_gradients_.begin(), bias_gradients_.end(), 0.0);
        result.row_sees[place] = row(i, h, &q[i * qk()], &d_out[i * v()], exact ? nullptr : &out[i * v()],
                                     &result.dq[place * qk()]);
        if (spec_.bias_gradient) add_bias_gradients(i, h, result.d_bias, bias_mutex);
      }
      if (spec_.sinks) result.d_sinks[batch_ * heads + h] = d_sink_;
    }
    const auto store = [&](const std::vector<Number>& from, int64_t columns, double factor, double* to) {
      for (int64_t j = 0; j < seqlen_kv_; ++j)
        for (int64_t d = 0; d < columns; ++d)
          to[((batch_ * seqlen_kv_ + j) * kv_heads + kv_head_) * columns + d] =
              finished(from[j * columns + d] * static_cast<Number>(factor));
    };
    store(dk_, qk(), scale_, result.dk.data());
    store(dv_, v(), 1, result.dv.data());
  }

 private:
  int64_t qk() const { return spec_.head_dim.qk; }
  int64_t v() const { return spec_.head_dim.v; }
  Number in_type(Number value) const {
    return exact ? value : static_cast<Number>(rounded(spec_.dtype.kv, value));
  }
  double finished(Number value) const { return exact ? value : rounded(spec_.dtype.out, value); }

  /// Those of a row, summed over what the bias is broadcast along.
  void add_bias_gradients(int64_t i, int64_t h, std::vector<double>& sums, std::mutex& mutex) const {
    const std::vector<int64_t>& shape = arguments_.d_bias->shape;
    const auto place = [&](int dimension, int64_t index) { return shape[dimension] == 1 ? 0 : index; };
    const int64_t first = ((place(0, batch_) * shape[1] + place(1, h)) * shape[2] + place(2, i)) * shape[3];
    const std::lock_guard lock(mutex);
    for (int64_t j = 0; j < seqlen_kv_; ++j) sums[first + place(3, j)] += bias_gradients_[j];
  }

  /// sums[j] = sum over d of row[d] * columns[d][j], along the keys.
  void products(const Number* row, const std::vector<Number>& columns, int64_t dims, Visible keys,
                std::vector<Number>& sums) const {
    std::fill(sums.begin() + keys.first, sums.begin() + keys.last, Number{0});
    for (int64_t d = 0; d < dims; ++d) {
      const Number* column = columns.data() + d * seqlen_kv_;
      for (int64_t j = keys.first; j < keys.last; ++j) sums[j] += row[d] * column[j];
    }
  }

  /// Scores to probabilities, of the sink too; by the LSE of the scores themselves if `lse` is not given.
  /// False if there is nothing to see; keys that are not seen have a probability of 0.
  bool probabilities(int64_t i, Visible keys, std::optional<Number> lse) {
    const auto cap = static_cast<Number>(spec_.softcap);
    Number maximum = infinitely_little;
    for (int64_t j = keys.first; j < keys.last; ++j) {
      Number score = scores_[j] * scale_;
      const Number tanh = cap != 0 ? std::tanh(score / cap) : 0;
      slopes_[j] = 1 - tanh * tanh;
      scores_[j] = score = cap != 0 ? cap * tanh : score;
      if (values_) change(i, j);
      maximum = std::max(maximum, scores_[j]);
    }
    // All that the row sees may be its sink.
    if (std::max(maximum, sink_) == infinitely_little) {
      std::fill(scores_.begin() + keys.first, scores_.begin() + keys.last, Number{0});
      sink_share_ = 0;
      return false;
    }
    if (lse) {
      for (int64_t j = keys.first; j < keys.last; ++j) scores_[j] = std::exp(scores_[j] - *lse);
      sink_share_ = std::exp(sink_ - *lse);
      return maximum > infinitely_little;
    }
    const bool sees = maximum > infinitely_little;
    maximum = std::max(maximum, sink_);
    Number sum = sink_share_ = std::exp(sink_ - maximum);
    for (int64_t j = keys.first; j < keys.last; ++j) sum += scores_[j] = std::exp(scores_[j] - maximum);
    for (int64_t j = keys.first; j < keys.last; ++j) scores_[j] /= sum;
    sink_share_ /= sum;
    return sees;
  }

  /// What expressions make of a score that is scaled and capped, and of its slope.
  void change(int64_t i, int64_t j) {
    if (values_->has_score()) {
      slopes_[j] *= static_cast<Number>(values_->slope(i, j, scores_[j]));
      scores_[j] = static_cast<Number>(values_->score(i, j, scores_[j]));
    }
    if (values_->has_mask() && !values_->is_visible(i, j)) scores_[j] = infinitely_little;
    // A score of -inf is a key that is not seen, whatever the derivative.
    if (scores_[j] == infinitely_little) slopes_[j] = 0;
  }

  /// Whether it sees a key.
  bool row(int64_t i, int64_t h, const Number* q, const Number* d_out, const Number* out, double* dq) {
    std::fill(dq, dq + qk(), 0.0);
    const bool all = values_ && values_->has_mask();  // or as the expression says
    const Visible keys = all ? Visible{0, seqlen_kv_} : visible_keys(spec_.mask, i, seqlen_q_, seqlen_kv_);
    const int64_t index = (batch_ * arguments_.q.shape[head] + h) * seqlen_q_ + i;
    const Number d_lse =
        arguments_.d_lse ? static_cast<Number>(load_element(arguments_.d_lse->data, DataType::fp32, index))
                         : 0;
    if (keys.first >= keys.last) {  // all of the row is its sink
      if (sink_ != infinitely_little) d_sink_ += d_lse;
      return false;
    }
    products(q, k_, qk(), keys, scores_);
    const auto lse = static_cast<Number>(load_element(arguments_.lse.data, DataType::fp32, index));
    const bool sees = probabilities(i, keys, exact ? std::nullopt : std::optional(lse));
    for (int64_t j = keys.first; j < keys.last; ++j)
      if (scores_[j] > 0) key_is_seen_[j * arguments_.k.shape[head]] = 1;
    products(d_out, v_, v(), keys, gradients_);
    const HeadDropout<Number> dropout(spec_, arguments_.dropout,
                                      (first_batch_ + batch_) * arguments_.q.shape[head] + h);
    for (int64_t j = keys.first; j < keys.last; ++j) gradients_[j] *= dropout.factor(i, j);
    Number term = 0;
    if constexpr (exact) {
      for (int64_t j = keys.first; j < keys.last; ++j) term += scores_[j] * gradients_[j];
    } else {
      for (int64_t d = 0; d < v(); ++d) term += d_out[d] * out[d];
    }
    term -= d_lse;
    d_sink_ -= sink_share_ * term;
    std::vector<Number> sum(qk(), Number{0});
    for (int64_t j = keys.first; j < keys.last; ++j) {
      const Number before_slope = scores_[j] * (gradients_[j] - term);
      const Number gradient = in_type(before_slope * slopes_[j]);
      bias_gradients_[j] = in_type(before_slope);
      const Number probability = in_type(scores_[j] * dropout.factor(i, j));
      for (int64_t d = 0; d < v(); ++d) dv_[j * v() + d] += probability * d_out[d];
      for (int64_t d = 0; d < qk(); ++d) {
        dk_[j * qk() + d] += gradient * q[d];
        sum[d] += gradient * k_rows_[j * qk() + d];
      }
    }
    for (int64_t d = 0; d < qk(); ++d) dq[d] = finished(sum[d] * scale_);
    return sees;
  }

  const AttentionSpec& spec_;
  const BackwardArguments& arguments_;
  int64_t batch_, first_batch_, kv_head_, seqlen_q_, seqlen_kv_;
  Number scale_;
  Number sink_ = infinitely_little, sink_share_ = 0,
         d_sink_ = 0;  // of the head, of a row
  char* key_is_seen_ = nullptr;
  const ForwardArguments forward_ = forward_part(arguments_);
  std::optional<ExpressionValues> values_;  // of the head
  std::vector<Number> k_, v_, k_rows_, dk_, dv_, scores_, gradients_, slopes_;
  std::vector<double> bias_gradients_ = std::vector<double>(seqlen_kv_);  // of a row
};

/// `first_batch`: what the arguments' first batch counts as, for dropout and expressions.
template <typename Number>
ReferenceGradients gradients(const AttentionSpec& spec, const BackwardArguments& arguments,
                             int64_t first_batch) {
  const auto count = [](const TensorView& view) {
    int64_t elements = 1;
    for (int64_t size : view.shape) elements *= size;
    return elements;
  };
  ReferenceGradients result;
  result.dq.resize(count(arguments.q));
  result.dk.resize(count(arguments.k));
  result.dv.resize(count(arguments.v));
  const int64_t kv_heads = arguments.k.shape[head], heads = arguments.q.shape[head];
  result.row_sees.resize(arguments.q.shape[batch] * arguments.q.shape[sequence] * heads);
  result.key_is_seen.resize(arguments.k.shape[batch] * arguments.k.shape[sequence] * kv_heads);
  if (spec.sinks) result.d_sinks.resize(std::max<int64_t>(arguments.q.shape[batch], 1) * heads);
  if (spec.bias_gradient) result.d_bias.resize(count(*arguments.d_bias));
  std::mutex bias_mutex;
  in_parallel(arguments.q.shape[batch] * kv_heads, [&](int64_t index) {
    GroupProblem<Number>(spec, arguments, index / kv_heads, index % kv_heads, first_batch)
        .run(result, bias_mutex);
  });
  if (spec.sinks) {  // of each batch so far
    for (size_t i = heads; i < result.d_sinks.size(); ++i) result.d_sinks[i % heads] += result.d_sinks[i];
    result.d_sinks.resize(heads);
  }
  return result;
}

/// Each sequence on its own.
template <typename Number>
ReferenceGradients packed_gradients(AttentionSpec spec, const BackwardArguments& given) {
  const BackwardArguments arguments = with_batch_of_one(given);
  const auto elements = [](const TensorView& view) { return view.shape[1] * view.shape[2] * view.shape[3]; };
  const int64_t rows = arguments.q.shape[sequence], keys = arguments.k.shape[sequence];
  ReferenceGradients result;
  result.dq.resize(elements(arguments.q)), result.dk.resize(elements(arguments.k));
  result.dv.resize(elements(arguments.v));
  const int64_t heads = arguments.q.shape[head], kv_heads = arguments.k.shape[head];
  result.row_sees.resize(rows * heads), result.live_rows.resize(rows * heads);
  result.key_is_seen.resize(keys * kv_heads), result.live_keys.resize(keys * kv_heads);
  if (spec.sinks) result.d_sinks.resize(heads);
  spec.layout = Layout::bshd;
  int64_t index = 0;
  for (const PackedSequence& part : packed_sequences(forward_part(given))) {
    const OneBackward one = one_sequence(spec, arguments, part);
    const ReferenceGradients own = gradients<Number>(spec, one.arguments, index++);
    const auto place = [](const auto& from, auto& to, int64_t first, int64_t all) {
      if (all > 0)
        std::copy(from.begin(), from.end(), to.begin() + first * (static_cast<int64_t>(to.size()) / all));
    };
    place(own.dq, result.dq, part.first_query, rows);
    place(own.dk, result.dk, part.first_key, keys);
    place(own.dv, result.dv, part.first_key, keys);
    place(own.row_sees, result.row_sees, part.first_query, rows);
    place(own.key_is_seen, result.key_is_seen, part.first_key, keys);
    std::fill_n(result.live_rows.begin() + part.first_query * heads, part.queries * heads, 1);
    std::fill_n(result.live_keys.begin() + part.first_key * kv_heads, part.keys * kv_heads, 1);
    for (size_t h = 0; h < result.d_sinks.size(); ++h) result.d_sinks[h] += own.d_sinks[h];
  }
  return result;
}

template <typename Number>
ReferenceGradients backward(const AttentionSpec& spec, const BackwardArguments& arguments) {
  check_arguments(spec, arguments);
  return spec.layout == Layout::packed ? packed_gradients<Number>(spec, arguments)
                                       : gradients<Number>(spec, arguments, 0);
}

}  // namespace

ReferenceGradients reference_backward(const AttentionSpec& spec, const BackwardArguments& arguments) {
  return backward<double>(spec, arguments);
}

ReferenceGradients plain_backward(const AttentionSpec& spec, const BackwardArguments& arguments) {
  return backward<float>(spec, arguments);
}

}  // namespace tilewright
