// Interval arithmetic: what expressions may be over a tile. Every range holds each value that evaluation can
// give there, in fp32 as in fp64: bounds of floats are widened by more than rounding and approximations take.
// The host includes this very file.

struct IntRange {
  long long low, high;
};

/// [-inf, inf] may also be NaN; no other range may.
struct FloatRange {
  float low, high;
};

/// Whether a condition holds somewhere in a tile, and whether it fails somewhere.
struct Truth {
  bool may_hold, may_fail;
};

enum class TileState { empty, full, mixed };

__device__ __forceinline__ TileState state_of(Truth mask) {
  return !mask.may_hold ? TileState::empty : !mask.may_fail ? TileState::full : TileState::mixed;
}

constexpr long long int64_lowest = -9223372036854775807LL - 1;

constexpr long long int64_highest = 9223372036854775807LL;

__device__ __forceinline__ IntRange any_int() {
  return {int64_lowest, int64_highest};
}

__device__ __forceinline__ FloatRange any_float() {
  return {-INFINITY, INFINITY};
}

__device__ __forceinline__ bool may_be_nan(FloatRange a) {
  return a.low == -INFINITY && a.high == INFINITY;
}

__device__ __forceinline__ IntRange exactly_int(long long value) {
  return {value, value};
}

__device__ __forceinline__ FloatRange exactly_float(float value) {
  return value == value ? FloatRange{value, value} : any_float();
}

__device__ __forceinline__ Truth exactly_bool(bool value) {
  return {value, !value};
}

__device__ __forceinline__ Truth not_truth(Truth a) {
  return {a.may_fail, a.may_hold};
}

__device__ __forceinline__ Truth and_truths(Truth a, Truth b) {
  return {a.may_hold && b.may_hold, a.may_fail || b.may_fail};
}

__device__ __forceinline__ Truth or_truths(Truth a, Truth b) {
  return {a.may_hold || b.may_hold, a.may_fail && b.may_fail};
}

__device__ __forceinline__ Truth equal_truths(Truth a, Truth b) {
  return {(a.may_hold && b.may_hold) || (a.may_fail && b.may_fail),
          (a.may_hold && b.may_fail) || (a.may_fail && b.may_hold)};
}

__device__ __forceinline__ Truth choose_truth(Truth condition, Truth a, Truth b) {
  return {(condition.may_hold && a.may_hold) || (condition.may_fail && b.may_hold),
          (condition.may_hold && a.may_fail) || (condition.may_fail && b.may_fail)};
}

__device__ __forceinline__ IntRange choose_int_range(Truth condition, IntRange a, IntRange b) {
  if (!condition.may_fail) return a;
  if (!condition.may_hold) return b;
  return {a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
}

__device__ __forceinline__ FloatRange choose_float_range(Truth condition, FloatRange a, FloatRange b) {
  if (!condition.may_fail) return a;
  if (!condition.may_hold) return b;
  return {a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
}

__device__ __forceinline__ Truth less_ints(IntRange a, IntRange b) {
  return {a.low < b.high, a.high >= b.low};
}

__device__ __forceinline__ Truth equal_ints(IntRange a, IntRange b) {
  return {a.low <= b.high && b.low <= a.high, a.low != a.high || b.low != b.high || a.low != b.low};
}

__device__ __forceinline__ Truth less_floats(FloatRange a, FloatRange b) {
  return {a.low < b.high, !(a.high < b.low)};
}

__device__ __forceinline__ Truth less_equal_floats(FloatRange a, FloatRange b) {
  return {a.low <= b.high, !(a.high <= b.low) || may_be_nan(a) || may_be_nan(b)};
}

__device__ __forceinline__ Truth equal_floats(FloatRange a, FloatRange b) {
  return {a.low <= b.high && b.low <= a.high, a.low != a.high || b.low != b.high || a.low != b.low};
}

/// Sums and differences of such ints fit.
__device__ __forceinline__ bool is_moderate(IntRange a) {
  return a.low > -(1LL << 62) && a.high < 1LL << 62;
}

__device__ __forceinline__ IntRange add_int_ranges(IntRange a, IntRange b) {
  if (!is_moderate(a) || !is_moderate(b)) return any_int();
  return {a.low + b.low, a.high + b.high};
}

__device__ __forceinline__ IntRange negate_int_range(IntRange a) {
  if (!is_moderate(a)) return any_int();
  return {-a.high, -a.low};
}

__device__ __forceinline__ IntRange subtract_int_ranges(IntRange a, IntRange b) {
  return add_int_ranges(a, negate_int_range(b));
}

__device__ __forceinline__ IntRange multiply_int_ranges(IntRange a, IntRange b) {
  if (!is_moderate(a) || !is_moderate(b)) return any_int();
  const float size_a = (float)larger_of(-a.low, a.high), size_b = (float)larger_of(-b.low, b.high);
  if (size_a * size_b > 4e18f) return any_int();
  const long long ll = a.low * b.low, lh = a.low * b.high, hl = a.high * b.low, hh = a.high * b.high;
  return {smaller_of(smaller_of(ll, lh), smaller_of(hl, hh)),
          larger_of(larger_of(ll, lh), larger_of(hl, hh))};
}

__device__ __forceinline__ IntRange divide_int_ranges(IntRange a, IntRange b) {
  if (!is_moderate(a) || !is_moderate(b)) return any_int();
  if (b.high < 0) {
    a = {-a.high, -a.low};
    b = {-b.high, -b.low};
  }
  if (b.low > 0)
    return {floor_divide(a.low, a.low >= 0 ? b.high : b.low),
            floor_divide(a.high, a.high >= 0 ? b.low : b.high)};
  const long long size = larger_of(abs_of(a.low), abs_of(a.high));
  return {-size, size};
}

__device__ __forceinline__ IntRange modulo_int_ranges(IntRange a, IntRange b) {
  if (!is_moderate(a) || !is_moderate(b)) return any_int();
  if (b.low == b.high && b.low > 0 && a.high - a.low < b.low) {
    const long long low = floor_modulo(a.low, b.low), high = floor_modulo(a.high, b.low);
    if (low <= high) return {low, high};
  }
  if (a.low >= 0 && b.low > 0) return {a.high < b.low ? a.low : 0, smaller_of(a.high, b.high - 1)};
  return {b.low < 0 ? b.low + 1 : 0, b.high > 0 ? b.high - 1 : 0};
}

__device__ __forceinline__ IntRange abs_int_range(IntRange a) {
  if (!is_moderate(a)) return any_int();
  return a.low >= 0 ? a : a.high <= 0 ? IntRange{-a.high, -a.low} : IntRange{0, larger_of(-a.low, a.high)};
}

__device__ __forceinline__ IntRange min_int_ranges(IntRange a, IntRange b) {
  return {smaller_of(a.low, b.low), smaller_of(a.high, b.high)};
}

__device__ __forceinline__ IntRange max_int_ranges(IntRange a, IntRange b) {
  return {larger_of(a.low, b.low), larger_of(a.high, b.high)};
}

/// Of indices of look-ups.
__device__ __forceinline__ IntRange saturated_range(IntRange a) {
  return {saturated_index(a.low), saturated_index(a.high)};
}

/// Takes in the error of one operation: relative, and absolute for small results, which may be flushed to 0.
/// What is infinite in fp32 need not be in fp64.
__device__ __forceinline__ FloatRange widened(FloatRange a, float relative, float absolute) {
  if (!(a.low <= a.high)) return any_float();
  const float low = a.low - (abs_of(a.low) * relative + absolute);
  const float high = a.high + (abs_of(a.high) * relative + absolute);
  return {a.low > 3e38f  ? 3e38f
          : low < -3e38f ? -INFINITY
                         : low,
          a.high < -3e38f ? -3e38f
          : high > 3e38f  ? INFINITY
                          : high};
}

/// fp32 rounds to 2^-24.
__device__ __forceinline__ FloatRange rounded(FloatRange a) {
  return widened(a, 1e-6f, 1e-37f);
}

__device__ __forceinline__ bool may_be_infinite(FloatRange a) {
  return a.low < -3e38f || a.high > 3e38f;
}

__device__ __forceinline__ bool may_be_zero(FloatRange a) {
  return a.low < 1e-36f && a.high > -1e-36f;
}

__device__ __forceinline__ FloatRange int_to_float_range(IntRange a) {
  const FloatRange range = {(float)a.low, (float)a.high};
  return a.low >= -(1 << 24) && a.high <= 1 << 24 ? range : rounded(range);
}

__device__ __forceinline__ FloatRange negate_float_range(FloatRange a) {
  return {-a.high, -a.low};
}

__device__ __forceinline__ FloatRange add_float_ranges(FloatRange a, FloatRange b) {
  if (may_be_nan(a) || may_be_nan(b)) return any_float();
  if ((a.high > 3e38f && b.low < -3e38f) || (a.low < -3e38f && b.high > 3e38f)) return any_float();
  return rounded({a.low + b.low, a.high + b.high});
}

__device__ __forceinline__ FloatRange subtract_float_ranges(FloatRange a, FloatRange b) {
  return add_float_ranges(a, negate_float_range(b));
}

__device__ __forceinline__ FloatRange hull_of_four(float a, float b, float c, float d) {
  return rounded(
      {smaller_of(smaller_of(a, b), smaller_of(c, d)), larger_of(larger_of(a, b), larger_of(c, d))});
}

__device__ __forceinline__ FloatRange multiply_float_ranges(FloatRange a, FloatRange b) {
  if (may_be_nan(a) || may_be_nan(b)) return any_float();
  if ((may_be_zero(a) && may_be_infinite(b)) || (may_be_infinite(a) && may_be_zero(b))) return any_float();
  return hull_of_four(a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high);
}

__device__ __forceinline__ FloatRange divide_float_ranges(FloatRange a, FloatRange b) {
  if (may_be_nan(a) || may_be_zero(b) || (may_be_infinite(a) && may_be_infinite(b))) return any_float();
  return hull_of_four(a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high);
}

__device__ __forceinline__ FloatRange abs_float_range(FloatRange a) {
  if (may_be_nan(a) || a.low >= 0) return a;
  return a.high <= 0 ? FloatRange{-a.high, -a.low} : FloatRange{0, larger_of(-a.low, a.high)};
}

__device__ __forceinline__ FloatRange min_float_ranges(FloatRange a, FloatRange b) {
  if (may_be_nan(a) || may_be_nan(b)) return any_float();
  return {smaller_of(a.low, b.low), smaller_of(a.high, b.high)};
}

__device__ __forceinline__ FloatRange max_float_ranges(FloatRange a, FloatRange b) {
  if (may_be_nan(a) || may_be_nan(b)) return any_float();
  return {larger_of(a.low, b.low), larger_of(a.high, b.high)};
}

__device__ __forceinline__ FloatRange exp_range(FloatRange a) {
  return may_be_nan(a) ? a : widened({exp_of(a.low), exp_of(a.high)}, 1e-4f, 1e-37f);
}

__device__ __forceinline__ FloatRange log_range(FloatRange a) {
  if (may_be_nan(a) || !(a.low >= 0)) return any_float();
  const FloatRange range = {a.low < 1e-36f ? -INFINITY : log_of(a.low),
                            a.high < 1e-36f ? -80.0f : log_of(a.high)};
  return widened(range, 1e-6f, 1e-5f);
}

__device__ __forceinline__ FloatRange tanh_range(FloatRange a) {
  return may_be_nan(a) ? a : widened({tanh_of(a.low), tanh_of(a.high)}, 1e-6f, 1e-5f);
}

/// exp2(y * log2(x)) = exp(y * log(x)).
__device__ __forceinline__ FloatRange pow_ranges(FloatRange x, FloatRange y) {
  const FloatRange result = exp_range(multiply_float_ranges(y, log_range(x)));
  if (!(y.low <= 0 && y.high >= 0) || may_be_nan(result)) return result;
  return {smaller_of(result.low, 1.0f), larger_of(result.high, 1.0f)};
}

/// Of floor(x); NaN gives 0.
__device__ __forceinline__ IntRange floor_range(FloatRange a) {
  return {floor_to_int(a.low), floor_to_int(a.high)};
}
