// What a launch gives to expressions. The host includes this very file.

/// Strides in bytes, 0 along dimensions of one element; the last index of each dimension.
struct ExpressionTensor {
  const void* data;
  long long strides[4];
  int last[4];
};

/// The smallest and largest value of a look-up over each tile of keys or query rows: two 32-bit words,
/// [batches][heads][tiles].
struct ExpressionTable {
  int* entries;
  int batches, heads;  // 1: the same for all
  int tiles;
};
