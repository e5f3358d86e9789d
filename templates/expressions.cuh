// Where expressions are evaluated.

/// A place in the matrix of scores: positions in the sequence of keys, the last query at the last key,
/// whatever the mask's alignment.
struct Positions {
  int q, kv;
};

__device__ __forceinline__ Positions positions_of(const Sequence& sequence, int row, int key) {
  return {row + sequence.keys - sequence.queries, key};
}

/// Where an element lies along one dimension: indices beyond the ends mean the ends.
__device__ __forceinline__ long long element_offset(const ExpressionTensor& tensor, int dimension,
                                                    int index) {
  const int last = tensor.last[dimension], not_negative = index < 0 ? 0 : index;
  return (not_negative < last ? not_negative : last) * tensor.strides[dimension];
}

/// The standard slope; `heads` is the largest power of two up to the number of heads.
__device__ __forceinline__ float alibi_slope(int head, int heads) {
  const float exponent = head < heads ? -8.0f * (float)(head + 1) : -4.0f * (float)(2 * (head - heads) + 1);
  return exp2_approximate(exponent / (float)heads);
}

__device__ __forceinline__ IntRange any_int32() {
  return {-2147483647 - 1, 2147483647};
}

/// Of 32-bit numbers: from the smallest to the largest of all lanes.
__device__ __forceinline__ IntRange range_of_warp(IntRange range) {
  int low = (int)range.low, high = (int)range.high;
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) {
    low = smaller_of(low, (int)shuffle_xor((u32)low, mask));
    high = larger_of(high, (int)shuffle_xor((u32)high, mask));
  }
  return {low, high};
}

/// Whether all lanes have the same range of few indices. All lanes of a warp ask together.
__device__ __forceinline__ bool are_shared(IntRange range) {
  const IntRange all = range_of_warp(range);
  return all.low == range.low && all.high == range.high && range.high - range.low < 1024;
}

__device__ __forceinline__ bool is_shared(IntRange range) {
  return are_shared(range) && range.low == range.high;
}
