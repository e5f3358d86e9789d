// Layout packed: where the sequences of a batch lie, and which tile of query rows comes when. Whatever the
// numbers on the device say, rows stay inside of the tensors.

/// Rows from the first on, of q and out and of k and v.
struct PackedSequence {
  int first_query, first_key;
  Sequence lengths;
};

/// How many of `total` rows sequence i has.
__device__ __forceinline__ int packed_rows(int& first, const int* starts, const int* used, int i, int total) {
  const int begin = global_load(starts + i), end = minimum(global_load(starts + i + 1), total);
  first = minimum(begin < 0 ? 0 : begin, total);
  const int rows = end < first ? 0 : end - first;
  const int wanted = used ? global_load(used + i) : rows;
  return wanted < 0 ? 0 : minimum(wanted, rows);
}

__device__ __forceinline__ PackedSequence packed_sequence(const ForwardParameters& p, int i) {
  PackedSequence sequence;
  sequence.lengths.queries = packed_rows(sequence.first_query, p.query_starts, p.queries_used, i, p.seqlen_q);
  sequence.lengths.keys = packed_rows(sequence.first_key, p.key_starts, p.keys_used, i, p.seqlen_kv);
  return sequence;
}

/// Tiles of so many rows in the order of the batch: those of sequence i have the places from its first row /
/// tile_rows + i on, which leaves some places without a tile and needs no sum over the lengths before.
template <int tile_rows>
__device__ __forceinline__ int first_place(const int* starts, int i, int total) {
  const int start = global_load(starts + i);
  return (start < 0 ? 0 : minimum(start, total)) / tile_rows + i;
}

/// The sequence that has a place, if any has; otherwise one that does not reach it. All lanes of the warp
/// look together, at 32 sequences at once.
template <int tile_rows>
__device__ __forceinline__ int sequence_at(const int* starts, int sequences, int total, int place) {
  int low = 0, left = sequences;
#pragma unroll 1
  while (left > 1) {
    const int step = (left + 31) / 32, further = thread_index() % 32 * step;
    const bool begins = further < left && first_place<tile_rows>(starts, low + further, total) <= place;
    const int last = highest_bit(warp_ballot(begins) | 1) * step;
    low += last;
    left = minimum(step, left - last);
  }
  return low;
}

__device__ __forceinline__ int query_tiles(const PackedSequence& sequence) {
  return (sequence.lengths.queries + block_m - 1) / block_m;
}

/// A tile of query rows; without rows beyond the last tile.
struct PackedTile {
  PackedSequence sequence;
  int index;  // of the sequence
  int row;    // the first one, counted within the sequence
};

/// Tile m of sequence i. Under a causal mask the last rows have the most keys and come first.
__device__ __forceinline__ PackedTile packed_tile(const ForwardParameters& p, int i, int m) {
  PackedTile tile = {packed_sequence(p, i), i, 0};
  const int tiles = query_tiles(tile.sequence);
  if (m >= 0 && m < tiles)
    tile.row = (last_rows_first ? tiles - 1 - m : m) * block_m;
  else
    tile.sequence.lengths = {0, 0};
  return tile;
}

/// The longest sequences come first, so that the last tiles to run are short ones; by classes of their number
/// of keys that differ twofold. Two passes over the lengths by a warp take about 3 instructions a sequence:
/// more of them than this come in the order of the batch.
constexpr int most_ordered_sequences = 1024;

constexpr int length_classes = 8;

__device__ __forceinline__ int length_class(const PackedSequence& sequence) {
  int order = 0;
#pragma unroll
  for (int i = 0; i < length_classes - 1; ++i) order += sequence.lengths.keys > 256 << i;
  return order;
}

/// The sum over the warp; `before` becomes that over the lanes below.
__device__ __forceinline__ int warp_sum(int value, int& before) {
  before = 0;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = (int)shuffle_xor((u32)value, step);
    if (thread_index() & step) before += other;
    value += other;
  }
  return value;
}

/// Where a search stands. Whoever looks for one tile after the other, places growing, goes on from the last:
/// only the first takes both passes.
struct TileSearch {
  int total;   // lane c: tiles of class c
  int order;   // the class, from the longest down
  int first;   // its sequence that lane 0 looks at
  int before;  // tiles before that
};

/// All lanes of the warp search together.
__device__ __forceinline__ TileSearch start_search(const ForwardParameters& p) {
  TileSearch search = {0, length_classes - 1, 0, 0};
  if (p.sequences > most_ordered_sequences) return search;
  const int lane = thread_index() % 32;
  int count[length_classes] = {}, ignored;
#pragma unroll 1
  for (int i = lane; i < p.sequences; i += 32) {
    const PackedSequence sequence = packed_sequence(p, i);
    const int mine = length_class(sequence);
#pragma unroll
    for (int c = 0; c < length_classes; ++c) count[c] += c == mine ? query_tiles(sequence) : 0;
  }
#pragma unroll
  for (int c = 0; c < length_classes; ++c) {
    const int all = warp_sum(count[c], ignored);
    if (lane == c) search.total = all;
  }
  return search;
}

/// Tile `place` in the order of the classes: one without rows behind all that have some.
__device__ __forceinline__ PackedTile ordered_tile(const ForwardParameters& p, TileSearch& search,
                                                   int place) {
  const int lane = thread_index() % 32;
#pragma unroll 1
  while (search.order >= 0) {
    const int all_of_class = search.before + uniform(lane == search.order ? search.total : 0);
    if (search.first >= p.sequences || (search.first == 0 && place >= all_of_class)) {
      if (search.first == 0) search.before = all_of_class;
      search.first = 0;
      --search.order;
      continue;
    }
    const int i = minimum(search.first + lane, p.sequences - 1);
    const PackedSequence sequence = packed_sequence(p, i);
    const bool counts = search.first + lane < p.sequences && length_class(sequence) == search.order;
    const int tiles = counts ? query_tiles(sequence) : 0;
    int before;
    const int all = warp_sum(tiles, before), rest = place - search.before;
    if (rest < all) {
      const bool here = rest >= before && rest < before + tiles;
      return packed_tile(p, uniform(here ? i : 0), uniform(here ? rest - before : 0));
    }
    search.before += all;
    search.first += 32;
  }
  return packed_tile(p, 0, -1);
}

/// Tile `place` in the order of the batch.
__device__ __forceinline__ PackedTile listed_tile(const ForwardParameters& p, int place) {
  const int i = sequence_at<block_m>(p.query_starts, p.sequences, p.seqlen_q, place);
  return packed_tile(p, i, place - first_place<block_m>(p.query_starts, i, p.seqlen_q));
}

__device__ __forceinline__ PackedTile find_packed_tile(const ForwardParameters& p, TileSearch& search,
                                                       int place) {
  return p.sequences <= most_ordered_sequences ? ordered_tile(p, search, place) : listed_tile(p, place);
}
