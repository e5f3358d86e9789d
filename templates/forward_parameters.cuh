// What one launch of a forward kernel varies. The host includes this very file, so both sides share one
// layout.

/// Strides count elements; the last dimension of every tensor is contiguous. Offsets are 64-bit throughout.
struct TensorParameters {
  void* data;
  long long batch_stride;
  long long row_stride;
  long long head_stride;
};

/// Philox's key for each round, from seed and offset; the rate in units of 2^-32; 1 / (1 - rate).
struct DropoutParameters {
  unsigned int keys[20], threshold;
  float factor;
};

struct ForwardParameters {
  TensorParameters q, k, v, out;
  float* lse;               // [batch, heads, seqlen_q], contiguous; null: not written
  int seqlen_q, seqlen_kv;  // layout packed: of all sequences together
  int heads;                // query heads
  int m_tiles;              // tiles of query rows per head
  float scale, scale_log2;  // of the softmax, and that times log2(e)
  const int *query_starts, *key_starts, *queries_used, *keys_used;  // layout packed
  const void* sinks;                      // a logit for each query head, of sink_bytes
  const int *block_rows, *block_columns;  // mask.blocks
  int sequences, sink_bytes, block_entries, block_batch_stride, block_head_stride;
  DropoutParameters dropout;
};
