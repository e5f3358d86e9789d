// What the operations of expressions mean. The host includes this very file, so both sides agree.

template <typename Number>
__device__ __forceinline__ Number smaller_of(Number a, Number b) {
  return a < b ? a : b;
}

template <typename Number>
__device__ __forceinline__ Number larger_of(Number a, Number b) {
  return a > b ? a : b;
}

template <typename Number>
__device__ __forceinline__ Number abs_of(Number a) {
  return a < 0 ? -a : a;
}

/// Rounded down, 0 for a divisor of 0. Not for the quotient that overflows.
template <typename Integer>
__device__ __forceinline__ Integer floor_divide(Integer a, Integer b) {
  if (b == 0) return 0;
  const Integer quotient = a / b, rest = a - quotient * b;
  return quotient - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
}

/// With the divisor's sign, 0 for a divisor of 0.
template <typename Integer>
__device__ __forceinline__ Integer floor_modulo(Integer a, Integer b) {
  if (b == 0) return 0;
  const Integer rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/// 64-bit arithmetic that may overflow wraps.
__device__ __forceinline__ long long wrapping_add(long long a, long long b) {
  return (long long)((u64)a + (u64)b);
}

__device__ __forceinline__ long long wrapping_subtract(long long a, long long b) {
  return (long long)((u64)a - (u64)b);
}

__device__ __forceinline__ long long wrapping_multiply(long long a, long long b) {
  return (long long)((u64)a * (u64)b);
}

__device__ __forceinline__ long long wrapping_abs(long long a) {
  return a < 0 ? wrapping_subtract(0, a) : a;
}

__device__ __forceinline__ long long wrapping_divide(long long a, long long b) {
  return b == -1 ? wrapping_subtract(0, a) : floor_divide(a, b);
}

__device__ __forceinline__ long long wrapping_modulo(long long a, long long b) {
  return b == -1 ? 0 : floor_modulo(a, b);
}

/// Indices of look-ups are 32-bit: beyond, every tensor ends.
__device__ __forceinline__ int saturated_index(long long a) {
  return (int)(a < -2147483648LL ? -2147483648LL : a > 2147483647LL ? 2147483647LL : a);
}

/// Saturated; 0 for NaN.
__device__ __forceinline__ int floor_to_int(float x) {
  if (!(x >= -2147483648.0f)) return x < 0.0f ? -2147483647 - 1 : 0;
  if (x >= 2147483648.0f) return 2147483647;
  const int truncated = (int)x;
  return (float)truncated > x ? truncated - 1 : truncated;
}

__device__ __forceinline__ float exp_of(float x) {
  return exp2_approximate(x * log2_e);
}

__device__ __forceinline__ float log_of(float x) {
  return log2_approximate(x) * ln_2;
}

/// 1 - 2 / (exp(2x) + 1): absolute error near 2^-22, which tanh.approx (2^-11) does not reach.
__device__ __forceinline__ float tanh_of(float x) {
  return 1.0f - 2.0f * reciprocal_approximate(exp2_approximate(x * (2.0f * log2_e)) + 1.0f);
}

/// NaN for a negative base, 1 for the exponent 0.
__device__ __forceinline__ float power_of(float x, float y) {
  return y == 0.0f ? 1.0f : exp2_approximate(y * log2_approximate(x));
}
