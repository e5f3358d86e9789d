// The tiles of keys that a tile of query rows visits, from the last to the first: those that the mask's
// interval analysis does not find empty. 32 tiles are looked at at once, one by each lane of the warp.

/// Tiles that are known ahead of the one where the walk stands.
constexpr int walk_lookahead = stages > 2 ? stages - 1 : 1;

struct KeyWalk {
  int queue[walk_lookahead + 1];  // 2 * tile + whether it needs a mask, from here on; negative: the end
  int base, begin;                // tile of bit 0, a multiple of 32; the first tile that may be visited
  u32 seen, mixed;                // of the 32 tiles from `base` on, what is still to come
  __device__ __forceinline__ int ahead(int steps) const { return queue[steps] >> 1; }
  __device__ __forceinline__ bool visits(int tile) const { return tile >= 0; }
  __device__ __forceinline__ bool visits_none() const { return queue[0] < 0; }
  __device__ __forceinline__ bool is_below_full() const { return queue[0] & 1; }
  __device__ __forceinline__ bool is_above_full() const { return false; }
  __device__ __forceinline__ bool stays_full() const { return queue[0] >= 0 && !(queue[0] & 1); }

  /// Looks at the 32 tiles from `base` on.
  __device__ __forceinline__ void scan(const Sequence& sequence, const Scope& scope, int row) {
    const int key = (base + thread_index() % 32) * block_n, shift = diagonal_shift(sequence);
    // All lanes ask, since look-ups may be theirs together, those beyond the sequence too.
    const TileState state =
        tile_state(scope, row + shift, minimum(row + block_m, sequence.queries) - 1 + shift, key,
                   minimum(key + block_n, sequence.keys) - 1);
    const bool is_seen =
        base + thread_index() % 32 >= begin && key < sequence.keys && state != TileState::empty;
    const bool is_mixed = state != TileState::full || key + block_n > sequence.keys;
    seen = warp_ballot(is_seen);
    mixed = warp_ballot(is_mixed);
  }

  /// The next tile for the queue.
  __device__ __forceinline__ int find(const Sequence& sequence, const Scope& scope, int row) {
    while (seen == 0) {
      if (base <= begin) return -1;
      base -= 32;
      scan(sequence, scope, row);
    }
    const int bit = highest_bit(seen);
    seen ^= 1u << bit;
    return (base + bit) * 2 + (mixed >> bit & 1);
  }

  __device__ __forceinline__ void step(const Sequence& sequence, const Scope& scope, int row) {
#pragma unroll
    for (int i = 0; i < walk_lookahead; ++i) queue[i] = queue[i + 1];
    queue[walk_lookahead] = find(sequence, scope, row);
  }
};

/// `row` is the first of the tile of query rows. All lanes of a warp walk together.
__device__ __forceinline__ KeyWalk start_walk(const Sequence& sequence, const Scope& scope, int row) {
  KeyWalk walk;
  const KeyRange keys = visible_keys(sequence, scope, row, block_m);
  walk.begin = (int)(keys.begin / block_n);
  walk.base = keys.end > keys.begin ? (int)((keys.end + block_n * 32 - 1) / (block_n * 32)) * 32 : 0;
  walk.seen = 0;
#pragma unroll
  for (int i = 0; i <= walk_lookahead; ++i) walk.queue[i] = walk.find(sequence, scope, row);
  return walk;
}

/// Votes agree in all lanes as it is.
__device__ __forceinline__ void make_uniform(KeyWalk&) {}
