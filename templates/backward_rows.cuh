// Which query rows a block of the kernels before and after the main one has: all sequences have the same
// lengths.

/// `head_index` of all heads of the batch; `row` the first one.
struct RowsPlace {
  int batch, head, head_index, row, rows;  // rows: of the sequence
  static constexpr int first_query = 0;
};

/// Tile `tile` of query rows in the order of the workspace.
__device__ __forceinline__ RowsPlace rows_place(const BackwardParameters& p, int tile) {
  RowsPlace place;
  place.head_index = tile / p.forward.m_tiles;
  place.row = tile % p.forward.m_tiles * block_m;
  place.batch = place.head_index / p.forward.heads;
  place.head = place.head_index % p.forward.heads;
  place.rows = p.forward.seqlen_q;
  return place;
}
