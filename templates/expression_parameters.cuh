// What a launch gives to expressions. The host includes this very file.

/// Strides in bytes, 0 along dimensions of one element; the last index of each dimension.
struct ExpressionTensor {
  const void* data;
  long long strides[4];
  int last[4];
};
