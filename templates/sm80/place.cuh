// Which tile of query rows a block computes: all sequences have the same lengths.

struct BlockPlace {
  int batch, head, row;
  long long head_index;  // of all heads of the batch
  static constexpr int first_query = 0, first_key = 0;
};

__device__ __forceinline__ BlockPlace find_place(const ForwardParameters& p) {
  const int block = block_index();
  const int head_index = block / p.m_tiles, m_tile = block % p.m_tiles;
  BlockPlace place;
  place.batch = head_index / p.heads;
  place.head = head_index % p.heads;
  // Under a causal mask the last rows have the most keys: they start first, so that the short tiles fill the
  // gaps at the end.
  place.row = (last_rows_first ? p.m_tiles - 1 - m_tile : m_tile) * block_m;
  place.head_index = head_index;
  return place;
}

/// The same once more, after find_place.
__device__ __forceinline__ BlockPlace recall_place(const ForwardParameters& p) {
  return find_place(p);
}

__device__ __forceinline__ Sequence sequence_of(const ForwardParameters& p) {
  return {p.seqlen_q, p.seqlen_kv};
}
