// Types and numbers that every family uses.

typedef unsigned int u32;

typedef unsigned long long u64;

typedef unsigned short u16;

constexpr float minus_infinity = -INFINITY;

constexpr float not_a_number = NAN;

constexpr float log2_e = 1.4426950408889634f;

constexpr float ln_2 = 0.6931471805599453f;

__device__ __forceinline__ constexpr int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

__device__ __forceinline__ constexpr int minimum(int a, int b) {
  return a < b ? a : b;
}
