#include <algorithm>
#include <cmath>

#include "runtime/arguments.h"
#include "runtime/compare_parts.h"
#include "runtime/packed.h"
#include "runtime/reference.h"

namespace tilewright {
namespace {

using namespace reference;

constexpr int batch = 0, sequence = 1, head = 2, element = 3;

// The hardware's exp2 and log2 are good to this, relative to 1.
constexpr double approximation_error = 0x1p-22;

std::string place_of_out(int64_t b, int64_t i, int64_t h, int64_t d) {
  return "out[" + std::to_string(b) + ", " + std::to_string(i) + ", " + std::to_string(h) + ", " +
         std::to_string(d) + "]";
}

class Comparison {
 public:
  Comparison(const AttentionSpec& spec, const ForwardArguments& arguments, const ForwardAnswers& answers)
      : spec_(spec),
        arguments_(spec.layout == Layout::packed ? with_batch_of_one(arguments) : arguments),
        reference_(answers.reference),
        plain_(answers.plain) {}

  Verdict run() {
    compare_out();
    if (spec_.lse) compare_lse();
    const double unit = rounding_error(spec_.dtype.out);
    verdict_.error = errors_.maximum;
    verdict_.rms_error = errors_.rms();
    verdict_.allowed = 2 * std::max(plain_errors_.maximum, unit * magnitudes_.maximum);
    verdict_.rms_allowed = 2 * std::max(plain_errors_.rms(), unit * magnitudes_.rms());
    verdict_.ok = verdict_.wrong_non_finite == 0 && wrong_empty_rows_ == 0 &&
                  verdict_.error <= verdict_.allowed && verdict_.rms_error <= verdict_.rms_allowed &&
                  verdict_.lse_error <= verdict_.lse_allowed;
    verdict_.message = worst_.message;
    return verdict_;
  }

 private:
  void compare_out() {
    const TensorView& out = arguments_.out;
    int64_t strides[4];
    effective_strides(spec_, out, strides);
    int64_t index = 0;
    for (int64_t b = 0; b < out.shape[batch]; ++b)
      for (int64_t i = 0; i < out.shape[sequence]; ++i) {
        if (!is_live(i)) {
          index += out.shape[head] * out.shape[element];
          continue;
        }
        for (int64_t h = 0; h < out.shape[head]; ++h) {
          const double lse = reference_.lse[(b * out.shape[head] + h) * out.shape[sequence] + i];
          for (int64_t d = 0; d < out.shape[element]; ++d, ++index) {
            const int64_t offset =
                b * strides[batch] + i * strides[sequence] + h * strides[head] + d * strides[element];
            const double got = load_element(out.data, out.dtype, offset);
            add(got, index, std::isinf(lse), [&] { return place_of_out(b, i, h, d); });
          }
        }
      }
  }

  /// Rows of no sequence (layout packed) hold what they held before.
  bool is_live(int64_t row) const { return reference_.live.empty() || reference_.live[row]; }

  template <typename Place>
  void add(double got, int64_t index, bool empty_row, const Place& place) {
    const double expected = reference_.out[index];
    if (!std::isfinite(got)) {
      // Right only where the true value overflows the type.
      double stored = 0;
      store_element(&stored, spec_.dtype.out, 0, expected);
      if (load_element(&stored, spec_.dtype.out, 0) == got) return;
      ++verdict_.wrong_non_finite;
      if (worst_.beaten_by(2, 0)) worst_.set(2, 0, place(), got, expected);
      return;
    }
    const double error = std::abs(got - expected);
    errors_.add(error);
    magnitudes_.add(std::abs(expected));
    if (std::isfinite(plain_.out[index])) plain_errors_.add(std::abs(plain_.out[index] - expected));
    if (empty_row && got != 0) {
      ++wrong_empty_rows_;
      if (worst_.beaten_by(1, error)) worst_.set(1, error, place(), got, expected);
    } else if (worst_.beaten_by(0, error)) {
      worst_.set(0, error, place(), got, expected);
    }
  }

  void compare_lse() {
    const TensorView& lse = *arguments_.lse;
    Errors errors, plain_errors, magnitudes;
    for (size_t i = 0; i < reference_.lse.size(); ++i) {
      if (!is_live(static_cast<int64_t>(i) % lse.shape.back())) continue;
      const double got = load_element(lse.data, DataType::fp32, static_cast<int64_t>(i));
      const double expected = reference_.lse[i];
      auto place = [&] { return "lse element " + std::to_string(i); };
      if (std::isinf(expected)) {
        if (got == expected) continue;
        ++wrong_empty_rows_;
        if (worst_.beaten_by(1, 0)) worst_.set(1, 0, place(), got, expected);
      } else if (!std::isfinite(got)) {
        ++verdict_.wrong_non_finite;
        if (worst_.beaten_by(2, 0)) worst_.set(2, 0, place(), got, expected);
      } else {
        const double error = std::abs(got - expected);
        if (error > errors.maximum) lse_worst_.set(0, error, place(), got, expected);
        errors.add(error);
        magnitudes.add(std::abs(expected));
        if (std::isfinite(plain_.lse[i])) plain_errors.add(std::abs(plain_.lse[i] - expected));
      }
    }
    verdict_.lse_error = errors.maximum;
    const double scale = std::max({1.0, magnitudes.maximum, spec_.softcap});
    verdict_.lse_allowed = 2 * std::max(plain_errors.maximum, approximation_error * scale);
    if (verdict_.lse_error > verdict_.lse_allowed && worst_.beaten_by(1, lse_worst_.error)) {
      worst_ = lse_worst_;
      worst_.rank = 1;
    }
  }

  const AttentionSpec& spec_;
  const ForwardArguments arguments_;
  const ReferenceResult &reference_, &plain_;
  Verdict verdict_;
  Errors errors_, plain_errors_, magnitudes_;
  int64_t wrong_empty_rows_ = 0;
  Worst worst_, lse_worst_;
};

}  // namespace

ForwardAnswers forward_answers(const AttentionSpec& spec, const ForwardArguments& arguments) {
  return {reference_forward(spec, arguments), plain_forward(spec, arguments)};
}

Verdict compare_forward(const AttentionSpec& spec, const ForwardArguments& arguments,
                        const ForwardAnswers& answers) {
  return Comparison(spec, arguments, answers).run();
}

Verdict compare_forward(const AttentionSpec& spec, const ForwardArguments& arguments) {
  return compare_forward(spec, arguments, forward_answers(spec, arguments));
}

}  // namespace tilewright
