// Tables of the smallest and the largest value of a mask's look-ups over each tile of keys, or of query rows,
// as the mask's interval analysis reads them.

/// Tiles beyond the last are the last one.
__device__ __forceinline__ const int* table_entry(const ExpressionTable& table, int batch, int head,
                                                  int tile) {
  const long long part =
      (long long)(table.batches > 1 ? batch : 0) * table.heads + (table.heads > 1 ? head : 0);
  return table.entries + (part * table.tiles + minimum(tile, table.tiles - 1)) * 2;
}

__device__ __forceinline__ IntRange int_table_range(const int* entry) {
  return {load_int32(entry), load_int32(entry + 1)};
}

__device__ __forceinline__ Truth bool_table_range(const int* entry) {
  const IntRange range = int_table_range(entry);
  return {range.high != 0, range.low == 0};
}

__device__ __forceinline__ FloatRange float_table_range(const int* entry) {
  return {load_float32(entry), load_float32(entry + 1)};
}

constexpr IntRange no_ints = {2147483647, -2147483647 - 1};

constexpr FloatRange no_floats = {INFINITY, -INFINITY};

constexpr Truth no_bools = {false, false};

__device__ __forceinline__ IntRange with_value(IntRange range, int value) {
  return {smaller_of<long long>(range.low, value), larger_of<long long>(range.high, value)};
}

/// NaN makes the range [-inf, inf].
__device__ __forceinline__ FloatRange with_value(FloatRange range, float value) {
  if (value != value) return any_float();
  return {smaller_of(range.low, value), larger_of(range.high, value)};
}

__device__ __forceinline__ Truth with_value(Truth range, bool value) {
  return {range.may_hold || value, range.may_fail || !value};
}
