// Ranges of keys from a mask's comparisons: the keys that a tile of query rows may see, and those that each
// of its rows sees. The host includes this very file.

/// [begin, end): no row sees a key outside. [full_begin, full_end), which may be empty: every row sees these.
struct KeyRange {
  long long begin, end, full_begin, full_end;
};

/// Far beyond every key, and near enough to count from.
constexpr long long no_key_limit = 1LL << 62;

__device__ __forceinline__ KeyRange unknown_keys() {
  return {-no_key_limit, no_key_limit, 0, 0};
}

/// kv <= limit; each row's limit is in the range.
__device__ __forceinline__ KeyRange keys_at_most(IntRange limit) {
  return {-no_key_limit, is_moderate(limit) ? limit.high + 1 : no_key_limit, -no_key_limit,
          is_moderate(limit) ? limit.low + 1 : -no_key_limit};
}

/// kv >= limit.
__device__ __forceinline__ KeyRange keys_at_least(IntRange limit) {
  return {is_moderate(limit) ? limit.low : -no_key_limit, no_key_limit,
          is_moderate(limit) ? limit.high : no_key_limit, no_key_limit};
}

/// All keys or none, by a condition on the row.
__device__ __forceinline__ KeyRange keys_if(Truth condition) {
  return {-no_key_limit, condition.may_hold ? no_key_limit : -no_key_limit, -no_key_limit,
          condition.may_fail ? -no_key_limit : no_key_limit};
}

__device__ __forceinline__ KeyRange and_keys(KeyRange a, KeyRange b) {
  return {larger_of(a.begin, b.begin), smaller_of(a.end, b.end), larger_of(a.full_begin, b.full_begin),
          smaller_of(a.full_end, b.full_end)};
}

/// The longer of two ranges, or both where they touch.
__device__ __forceinline__ KeyRange or_keys(KeyRange a, KeyRange b) {
  KeyRange keys = a;
  if (a.begin >= a.end) {
    keys.begin = b.begin, keys.end = b.end;
  } else if (b.begin < b.end) {
    keys.begin = smaller_of(a.begin, b.begin), keys.end = larger_of(a.end, b.end);
  }
  const bool touch = a.full_begin <= b.full_end && b.full_begin <= a.full_end;
  const bool a_empty = a.full_begin >= a.full_end, b_empty = b.full_begin >= b.full_end;
  if (!a_empty && !b_empty && touch) {
    keys.full_begin = smaller_of(a.full_begin, b.full_begin);
    keys.full_end = larger_of(a.full_end, b.full_end);
  } else if (a_empty || (!b_empty && b.full_end - b.full_begin > a.full_end - a.full_begin)) {
    keys.full_begin = b.full_begin, keys.full_end = b.full_end;
  }
  return keys;
}

/// What was found under the condition that a divisor is positive.
__device__ __forceinline__ KeyRange keys_provided(Truth positive, KeyRange keys) {
  return positive.may_fail ? unknown_keys() : keys;
}

/// Of a sequence of `keys` keys.
__device__ __forceinline__ KeyRange limited_to(KeyRange range, int keys) {
  const auto within = [&](long long key) { return key < 0 ? 0LL : key > keys ? (long long)keys : key; };
  return {within(range.begin), within(range.end), within(range.full_begin), within(range.full_end)};
}
