#include <algorithm>
#include <cmath>

#include "runtime/compare_parts.h"
#include "runtime/packed.h"
#include "runtime/reference_backward.h"
#include "runtime/reference_parts.h"

namespace tilewright {
namespace {

using namespace reference;

class GradientComparison {
 public:
  GradientComparison(const AttentionSpec& spec, BackwardVerdict& verdict, Worst& worst)
      : spec_(spec), verdict_(verdict), worst_(worst) {}

  /// `seen`: of each row of the last dimension, whether it may be other than 0; null: any may. `live`:
  /// whether there is one (null or empty: all).
  GradientError run(const char* name, const TensorView& got, const std::vector<double>& reference,
                    const std::vector<double>& plain, const std::vector<char>* seen,
                    const std::vector<char>* live = nullptr) {
    int64_t strides[4];
    effective_strides(spec_, got, strides);
    const int64_t columns = got.shape.back();
    Errors errors, plain_errors, magnitudes;
    std::vector<int64_t> place(got.shape.size(), 0);
    for (size_t index = 0; index < reference.size(); ++index) {
      int64_t offset = 0;
      size_t rest = index;
      for (size_t i = got.shape.size(); i-- > 0; rest /= got.shape[i]) {
        place[i] = static_cast<int64_t>(rest % got.shape[i]);
        offset += place[i] * strides[i];
      }
      if (live && !live->empty() && !(*live)[index / columns]) continue;
      const bool zero = seen && !(*seen)[index / columns];
      const double value = load_element(got.data, got.dtype, offset);
      const double expected = reference[index], error = std::abs(value - expected);
      const auto note = [&](int rank) {
        if (!worst_.beaten_by(rank, std::isfinite(error) ? error : 0)) return;
        std::string text;
        for (int64_t i : place) text += (text.empty() ? "[" : ", ") + std::to_string(i);
        worst_.set(rank, std::isfinite(error) ? error : 0, name + text + "]", value, expected);
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

BackwardVerdict compare_backward(const AttentionSpec& spec, const BackwardArguments& given,
                                 const BackwardAnswers& answers) {
  const auto& [reference, plain] = answers;
  const BackwardArguments arguments = spec.layout == Layout::packed ? with_batch_of_one(given) : given;
  BackwardVerdict verdict;
  Worst worst;
  GradientComparison comparison(spec, verdict, worst);
  verdict.dq =
      comparison.run("dq", arguments.dq, reference.dq, plain.dq, &reference.row_sees, &reference.live_rows);
  verdict.dk = comparison.run("dk", arguments.dk, reference.dk, plain.dk, &reference.key_is_seen,
                              &reference.live_keys);
  verdict.dv = comparison.run("dv", arguments.dv, reference.dv, plain.dv, &reference.key_is_seen,
                              &reference.live_keys);
  if (arguments.d_sinks)
    verdict.d_sinks =
        comparison.run("d_sinks", *arguments.d_sinks, reference.d_sinks, plain.d_sinks, nullptr);
  if (arguments.d_bias) {
    TensorView d_bias = *arguments.d_bias;  // in the order of its dimensions, whatever the layout
    d_bias.strides.assign(4, 1);
    for (int i = 3; i-- > 0;) d_bias.strides[i] = d_bias.strides[i + 1] * d_bias.shape[i + 1];
    verdict.d_bias = comparison.run("d_bias", d_bias, reference.d_bias, plain.d_bias, nullptr);
  }
  verdict.ok = verdict.wrong_non_finite == 0 && verdict.wrong_zero_rows == 0 && verdict.dq.ok() &&
               verdict.dk.ok() && verdict.dv.ok() && verdict.d_sinks.ok() && verdict.d_bias.ok();
  verdict.message = worst.message;
  return verdict;
}

}  // namespace tilewright
