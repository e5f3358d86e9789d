// Where expressions are evaluated.

/// A place in the matrix of scores.
struct Positions {
  int q, kv;
};

__device__ __forceinline__ Positions positions_of(const Sequence& sequence, int row, int key) {
  return {row + diagonal_shift(sequence), key};
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
