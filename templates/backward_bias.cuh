// The gradient of the bias: dS as it is before the derivative of scores, added up in the tensor that the
// launch gives. Where that has dimensions of 1, many add to the same place.

/// Where a thread's first row and key have theirs.
struct BiasGradients {
  char* first;
  long long row_bytes, key_bytes;  // from one to the next
  int rows, keys;                  // how many there are from the first on
  /// What is hidden adds nothing.
  __device__ __forceinline__ void add(int row, int key, float gradient) const {
    if (gradient != 0.0f && row < rows && key < keys)
      global_sum((float*)(first + row * row_bytes + key * key_bytes), gradient);
  }
};

__device__ __forceinline__ BiasGradients bias_gradients(const Scope& scope, int row, int key) {
  const ExpressionTensor& tensor = scope.arguments.tensor_d_bias;
  return {(char*)tensor.data + scope.batch * tensor.strides[0] + scope.head * tensor.strides[1] +
              row * tensor.strides[2] + key * tensor.strides[3],
          tensor.strides[2], tensor.strides[3], scope.seqlen_q - row, scope.seqlen_kv - key};
}
