// The tiles of keys that a tile of query rows visits, from the last to the first: all of a range.

/// [begin, end), of which [full_begin, full_end) need no mask; `tile` is where the walk stands.
struct KeyWalk {
  int tile, begin, end, full_begin, full_end;
  __device__ __forceinline__ int ahead(int steps) const { return tile - steps; }
  __device__ __forceinline__ bool visits(int other) const { return other >= begin; }
  __device__ __forceinline__ bool visits_none() const { return end == begin; }
  __device__ __forceinline__ bool is_below_full() const { return tile < full_begin; }
  __device__ __forceinline__ bool is_above_full() const { return tile >= full_end; }
  /// Stands at a tile that needs no mask, where is_above_full() is known to be false.
  __device__ __forceinline__ bool stays_full() const { return tile >= begin && tile >= full_begin; }
  __device__ __forceinline__ void step(const Sequence&, const Scope&, int) { --tile; }
};

/// Of a part of the tile's rows.
__device__ __forceinline__ KeyWalk start_part(const Sequence& sequence, const Scope& scope, int row,
                                              int rows) {
  const KeyRange keys = visible_keys(sequence, scope, row, rows);
  KeyWalk walk;
  walk.begin = (int)(keys.begin / block_n);
  walk.end = keys.end > keys.begin ? (int)((keys.end + block_n - 1) / block_n) : walk.begin;
  walk.full_begin = (int)((keys.full_begin + block_n - 1) / block_n);
  walk.full_end = (int)(keys.full_end / block_n);
  walk.tile = walk.end - 1;
  return walk;
}

/// Makes the compiler know that all lanes walk together.
__device__ __forceinline__ void make_uniform(KeyWalk& walk) {
  walk = {uniform(walk.tile), uniform(walk.begin), uniform(walk.end), uniform(walk.full_begin),
          uniform(walk.full_end)};
}

__device__ __forceinline__ KeyWalk start_walk(const Sequence& sequence, const Scope& scope, int row) {
  return start_part(sequence, scope, row, block_m);
}

/// Limits a walk to what a part of the tile's rows sees. It leaves out `before` tiles before it and `after`
/// behind it.
__device__ __forceinline__ void limit_walk(KeyWalk& walk, const Sequence& sequence, const Scope& scope,
                                           int row, int rows, int& before, int& after) {
  const int begin = walk.begin, end = walk.end;
  walk = start_part(sequence, scope, row, rows);
  make_uniform(walk);
  before = walk.visits_none() ? end - begin : end - walk.end;
  after = walk.visits_none() ? 0 : walk.begin - begin;
}
