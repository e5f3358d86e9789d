// The tiles of keys that a tile of query rows visits, from the last to the first: those of the caller's list
// of blocks that the rest of the mask does not hide.

/// Tiles that are known ahead of the one where the walk stands.
constexpr int walk_lookahead = stages > 2 ? stages - 1 : 1;

constexpr int tiles_per_block = list_block_n / block_n;

struct KeyWalk {
  int queue[walk_lookahead + 1];         // tiles, from here on; -1: the end
  int place;                             // in the list, counted in tiles: so many are still to come
  int begin, end, full_begin, full_end;  // tiles: what the rest of the mask shows, and shows whole
  const int* columns;
  __device__ __forceinline__ int ahead(int steps) const { return queue[steps]; }
  __device__ __forceinline__ bool visits(int tile) const { return tile >= 0; }
  __device__ __forceinline__ bool visits_none() const { return queue[0] < 0; }
  __device__ __forceinline__ bool is_below_full() const { return queue[0] < full_begin; }
  __device__ __forceinline__ bool is_above_full() const { return queue[0] >= full_end; }
  __device__ __forceinline__ bool stays_full() const {
    return queue[0] >= 0 && queue[0] >= full_begin && queue[0] < full_end;
  }

  /// The next tile for the queue. Numbers of blocks that do not exist are passed over. All lanes of a warp
  /// look together.
  __device__ __forceinline__ int find() {
    while (place > 0) {
      --place;
      const int block = uniform(global_load(columns + place / tiles_per_block));
      if (block < 0 || block > end / tiles_per_block) continue;
      const int tile = block * tiles_per_block + place % tiles_per_block;
      if (tile >= begin && tile < end) return tile;
    }
    return -1;
  }

  __device__ __forceinline__ void step(const Sequence&, const Scope&, int) {
#pragma unroll
    for (int i = 0; i < walk_lookahead; ++i) queue[i] = queue[i + 1];
    queue[walk_lookahead] = find();
  }
};

/// `row` is the first of the tile of query rows. The walk begins with follow_list.
__device__ __forceinline__ KeyWalk start_walk(const Sequence& sequence, const Scope& scope, int row) {
  const KeyRange keys = visible_keys(sequence, scope, row, block_m);
  KeyWalk walk;
  walk.begin = (int)(keys.begin / block_n);
  walk.end = keys.end > keys.begin ? (int)((keys.end + block_n - 1) / block_n) : walk.begin;
  walk.full_begin = (int)((keys.full_begin + block_n - 1) / block_n);
  walk.full_end = (int)(keys.full_end / block_n);
  return walk;
}

/// The list is block_columns[block_rows[i]] to block_columns[block_rows[i + 1] - 1] for the i-th block of
/// rows.
__device__ __forceinline__ void follow_list(KeyWalk& walk, const ForwardParameters& p, int batch, int head,
                                            int row) {
  const int* rows = p.block_rows + (long long)batch * p.block_batch_stride +
                    (long long)head * p.block_head_stride + row / list_block_m;
  const int from = uniform(global_load(rows)), to = minimum(uniform(global_load(rows + 1)), p.block_entries);
  const int begin = from < 0 ? 0 : from, count = to > begin ? to - begin : 0;
  walk.columns = p.block_columns + begin;
  walk.place = count * tiles_per_block;
#pragma unroll
  for (int i = 0; i <= walk_lookahead; ++i) walk.queue[i] = walk.find();
}

/// They are, since all lanes read the same list.
__device__ __forceinline__ void make_uniform(KeyWalk&) {}
