#include <algorithm>
#include <cmath>

#include "runtime/compare_parts.h"
#include "runtime/reference_backward.h"
#include "runtime/reference_parts.h"

namespace tilewright {
namespace {

using namespace reference;

class GradientComparison {
 public:
  GradientComparison(const AttentionSpec& spec, BackwardVerdict& verdict, Worst& worst)
      : spec_(spec), verdict_(verdict), worst_(worst) {}

  /// `sees_nothing(row)`: the gradient's row must be 0.
  template <typename SeesNothing>
  GradientError run(const char* name, const TensorView& got, const std::vector<double>& reference,
                    const std::vector<double>& plain, const SeesNothing& sees_nothing) {
    int64_t strides[4];
    effective_strides(spec_, got, strides);
    Errors errors, plain_errors, magnitudes;
    int64_t index = 0;
    for (int64_t b = 0; b < got.shape[batch]; ++b)
      for (int64_t i = 0; i < got.shape[sequence]; ++i) {
        const bool zero = sees_nothing(i);
        for (int64_t h = 0; h < got.shape[head]; ++h)
          for (int64_t d = 0; d < got.shape[element]; ++d, ++index) {
            const double value = load_element(
                got.data, got.dtype,
                b * strides[batch] + i * strides[sequence] + h * strides[head] + d * strides[element]);
            const double expected = reference[index], error = std::abs(value - expected);
            const auto note = [&](int rank) {
              if (!worst_.beaten_by(rank, std::isfinite(error) ? error : 0)) return;
              const std::string place = std::string(name) + "[" + std::to_string(b) + ", " +
                                        std::to_string(i) + ", " + std::to_string(h) + ", " +
                                        std::to_string(d) + "]";
              worst_.set(rank, std::isfinite(error) ? error : 0, place, value, expected);
            };
            if (!std::isfinite(value)) {
              // Right only where the true value overflows the type.
              double stored = 0;
              store_element(&stored, got.dtype, 0, expected);
              if (load_element(&stored, got.dtype, 0) == value) continue;
              ++verdict_.wrong_non_finite;
              note(2);
              continue;
            }
            errors.add(error);
            magnitudes.add(std::abs(expected));
            if (std::isfinite(plain[index])) plain_errors.add(std::abs(plain[index] - expected));
            if (zero && value != 0) ++verdict_.wrong_zero_rows;
            note(zero && value != 0 ? 1 : 0);
          }
      }
    const double unit = rounding_error(got.dtype);
    return {.error = errors.maximum,
            .allowed = 2 * std::max(plain_errors.maximum, unit * magnitudes.maximum),
            .rms_error = errors.rms(),
            .rms_allowed = 2 * std::max(plain_errors.rms(), unit * magnitudes.rms())};
  }

 private:
  const AttentionSpec& spec_;
  BackwardVerdict& verdict_;
  Worst& worst_;
};

}  // namespace

BackwardAnswers backward_answers(const AttentionSpec& spec, const BackwardArguments& arguments) {
  return {reference_backward(spec, arguments), plain_backward(spec, arguments)};
}

BackwardVerdict compare_backward(const AttentionSpec& spec, const BackwardArguments& arguments) {
  return compare_backward(spec, arguments, backward_answers(spec, arguments));
}

BackwardVerdict compare_backward(const AttentionSpec& spec, const BackwardArguments& arguments,
                                 const BackwardAnswers& answers) {
  const auto& [reference, plain] = answers;
  const int64_t rows = arguments.q.shape[sequence], keys = arguments.k.shape[sequence];
  std::vector<bool> row_sees(rows), key_is_seen(keys);
  for (int64_t i = 0; i < rows; ++i) {
    const Visible visible = visible_keys(spec.mask, i, rows, keys);
    row_sees[i] = visible.first < visible.last;
    for (int64_t j = visible.first; j < visible.last; ++j) key_is_seen[j] = true;
  }
  BackwardVerdict verdict;
  Worst worst;
  GradientComparison comparison(spec, verdict, worst);
  const auto row_is_blind = [&](int64_t i) { return !row_sees[i]; };
  const auto key_is_hidden = [&](int64_t j) { return !key_is_seen[j]; };
  verdict.dq = comparison.run("dq", arguments.dq, reference.dq, plain.dq, row_is_blind);
  verdict.dk = comparison.run("dk", arguments.dk, reference.dk, plain.dk, key_is_hidden);
  verdict.dv = comparison.run("dv", arguments.dv, reference.dv, plain.dv, key_is_hidden);
  verdict.ok = verdict.wrong_non_finite == 0 && verdict.wrong_zero_rows == 0 && verdict.dq.ok() &&
               verdict.dk.ok() && verdict.dv.ok();
  verdict.message = worst.message;
  return verdict;
}

}  // namespace tilewright
