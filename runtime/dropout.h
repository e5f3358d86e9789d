// Dropout on the host: launch arguments checked, and the mask that kernels draw, for references and tests.
#pragma once

#include <cstdint>

#include "runtime/forward_parameters.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// Throws Error(usage) unless dropout is given as the spec asks, with 0 <= rate < 1.
void check_dropout(const AttentionSpec& spec, const std::optional<Dropout>& dropout);

/// What a kernel takes; zeros for a launch without.
DropoutParameters dropout_parameters(const std::optional<Dropout>& dropout);

/// Whether the probability of a query and a key is kept; `head` counts the heads of all batches: batch *
/// heads + head.
bool is_kept(const DropoutParameters& dropout, int64_t head, int64_t query, int64_t key);

/// What probabilities of one head become.
template <typename Number>
class HeadDropout {
 public:
  /// `head` counts the heads of all batches.
  HeadDropout(const AttentionSpec& spec, const std::optional<Dropout>& dropout, int64_t head)
      : used_(spec.dropout), head_(head), parameters_(dropout_parameters(dropout)) {
    if (used_) factor_ = static_cast<Number>(1 / (1 - dropout->rate));
  }
  /// 0, or 1 / (1 - rate); 1 without dropout.
  Number factor(int64_t query, int64_t key) const {
    return !used_ || is_kept(parameters_, head_, query, key) ? factor_ : 0;
  }

 private:
  bool used_;
  int64_t head_;
  DropoutParameters parameters_;
  Number factor_ = 1;
};

}  // namespace tilewright
