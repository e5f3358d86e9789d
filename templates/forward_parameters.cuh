// What one launch of a forward kernel varies. The host includes this very file, so both sides share one
// layout.

/// Strides count elements; the last dimension of every tensor is contiguous. Offsets are 64-bit throughout.
struct TensorParameters {
  void* data;
  long long batch_stride;
  long long row_stride;
  long long head_stride;
};

struct ForwardParameters {
  TensorParameters q, k, v, out;
  float* lse;  // [batch, heads, seqlen_q], contiguous; null: not written
  int seqlen_q;
  int seqlen_kv;
  int heads;         // query heads
  int m_tiles;       // tiles of query rows per head
  float scale;       // softmax scale
  float scale_log2;  // softmax scale times log2(e)
};
