// The keys that one row sees, where the mask's comparisons give them as a range.

constexpr int far_key = 1 << 30;  // beyond any tile

/// `limit` counted from `key`, saturated.
__device__ __forceinline__ int limit_from(long long limit, int key) {
  return (int)clamp(limit - key, -far_key, far_key);
}

/// kv <= limit; here as below, limits are counted from `key`.
__device__ __forceinline__ KeyLimits limits_at_most(long long limit, int key) {
  return {-far_key, limit_from(limit, key - 1)};
}

/// kv >= limit.
__device__ __forceinline__ KeyLimits limits_at_least(long long limit, int key) {
  return {limit_from(limit, key), far_key};
}

/// All keys or none.
__device__ __forceinline__ KeyLimits limits_if(bool condition) {
  return {condition ? -far_key : far_key, condition ? far_key : -far_key};
}

__device__ __forceinline__ KeyLimits and_limits(KeyLimits a, KeyLimits b) {
  return {a.low > b.low ? a.low : b.low, minimum(a.high, b.high)};
}

/// Of limits that are all on one side, or none or all keys.
__device__ __forceinline__ KeyLimits or_limits(KeyLimits a, KeyLimits b) {
  return {minimum(a.low, b.low), a.high > b.high ? a.high : b.high};
}
