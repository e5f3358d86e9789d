// Which query rows a block of the kernels before and after the main one has: sequences differ in length.

/// `row` is the first one, counted within the sequence, which has `rows`: none, where no tile has the place.
struct RowsPlace {
  static constexpr int batch = 0;
  int head, head_index, row, rows, first_query;
};

/// Tile `tile` of query rows in the order of the workspace. All lanes of a warp look together.
__device__ __forceinline__ RowsPlace rows_place(const BackwardParameters& p, int tile) {
  const ForwardParameters& f = p.forward;
  RowsPlace place;
  place.head = place.head_index = tile / f.m_tiles;
  const int m = tile % f.m_tiles, i = sequence_at<block_m>(f.query_starts, f.sequences, f.seqlen_q, m);
  place.rows = packed_rows(place.first_query, f.query_starts, f.queries_used, i, f.seqlen_q);
  place.row = (m - first_place<block_m>(f.query_starts, i, f.seqlen_q)) * block_m;
  if (place.row < 0) place.row = place.rows;
  return place;
}
