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
/// of keys that differ twofold. Two passes over the lengths by each warp take about 3 instructions a
/// sequence: more of them than this come in the order of the batch.
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

/// Tile `place` in the order of the classes. All lanes of the warp look together.
__device__ __forceinline__ PackedTile ordered_tile(const ForwardParameters& p, int place) {
  const int lane = thread_index() % 32;
  int count[length_classes] = {}, ignored, wanted = -1;
#pragma unroll 1
  for (int i = lane; i < p.sequences; i += 32) {
    const PackedSequence sequence = packed_sequence(p, i);
    const int mine = length_class(sequence);
#pragma unroll
    for (int c = 0; c < length_classes; ++c) count[c] += c == mine ? query_tiles(sequence) : 0;
  }
#pragma unroll
  for (int c = length_classes - 1; c >= 0; --c) {
    const int all = warp_sum(count[c], ignored);
    if (wanted < 0 && place < all) wanted = c;
    if (wanted < 0) place -= all;
  }
#pragma unroll 1
  for (int first = 0; wanted >= 0 && first < p.sequences; first += 32) {
    const int i = minimum(first + lane, p.sequences - 1);
    const PackedSequence sequence = packed_sequence(p, i);
    const bool counts = first + lane < p.sequences && length_class(sequence) == wanted;
    const int tiles = counts ? query_tiles(sequence) : 0;
    int before;
    const int all = warp_sum(tiles, before);
    if (place < all) {
      const bool here = place >= before && place < before + tiles;
      return packed_tile(p, uniform(here ? i : 0), uniform(here ? place - before : 0));
    }
    place -= all;
  }
  return packed_tile(p, 0, -1);
}

/// Tile `place` in the order of the batch: sequence i has the places from its first row / block_m + i on,
/// which leaves some without a tile and needs no sum over the lengths before.
__device__ __forceinline__ PackedTile listed_tile(const ForwardParameters& p, int place) {
  int low = 0, high = p.sequences - 1;
#pragma unroll 1
  while (low < high) {
    const int middle = high - (high - low) / 2;
    const int start = minimum(global_load(p.query_starts + middle), p.seqlen_q);
    if (start / block_m + middle <= place)
      low = middle;
    else
      high = middle - 1;
  }
  const int start = global_load(p.query_starts + low);
  return packed_tile(p, low, place - (start < 0 ? 0 : minimum(start, p.seqlen_q)) / block_m - low);
}

__device__ __forceinline__ PackedTile find_packed_tile(const ForwardParameters& p, int place) {
  return p.sequences <= most_ordered_sequences ? ordered_tile(p, place) : listed_tile(p, place);
}
