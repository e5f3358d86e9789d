// A consumer: a warpgroup that computes 64 query rows of each of the block's tiles.

/// What stays the same over all tiles; descriptors are the low words (warpgroup_descriptor).
struct Consumer {
  int group;
  u32 query, keys, values;
};

/// With ping-pong the consumers take turns on the tensor cores.
__device__ __forceinline__ void take_turn(const Consumer& me) {
  named_barrier_wait<256>(1 + me.group);
}

__device__ __forceinline__ void pass_turn(const Consumer& me) {
  named_barrier_arrive<256>(1 + (me.group + 1 == consumers ? 0 : me.group + 1));
}

__device__ __forceinline__ Sides sides_of(const KeyWalk& walk) {
  return {walk.is_below_full(), walk.is_above_full()};
}

/// First tile of keys: nothing to overlap with yet.
__device__ __forceinline__ void attend_first(const HopperForwardParameters& p, const Layout& layout,
                                             const Consumer& me, const Sequence& sequence, const Scope& scope,
                                             const RingPlace& place, const Sides& sides, int j, int row,
                                             int head, bool only_tile, u32 (&probabilities)[block_n / 4],
                                             SoftmaxState& state, float scale_log2) {
  float scores[block_n / 2], largest[2], nothing_yet[2], shift[2];
  barrier_wait(layout.key_full(place.stage), place.parity);
  multiply_query_keys(scores, me.query, me.keys + place.stage * (key_bytes / 16));
  wait_scores<0>(scores);
  release(layout.key_empty(place.stage));
  if (clustered) release_elsewhere(layout.key_empty(place.stage));
  if (with_changed_scores) change_scores(scores, p.forward.scale, sequence, scope, row, j * block_n);
  if (!masked_by_limits) mask_scores(scores, sequence, sides, row, j * block_n);
  if (masked_by_limits) hide_scores_beyond(scores, sequence, scope, row, j * block_n);
  if (masked_by_function) hide_scores(scores, sequence, scope, row, j * block_n);
  row_maxima(largest, scores);
  shift_scores(scores, largest, shift, scale_log2);
  update_softmax<true>(scores, largest, state, nothing_yet, scale_log2);
  unshift(state, shift, only_tile, scale_log2);
  if (with_dropout) drop_probabilities(scores, p.forward.dropout, head, row, j * block_n);
  pack_probabilities(probabilities, scores);
}

/// Scores of tile j are computed while the probabilities of tile j + 1 meet its values; the softmax of j runs
/// under that product. Without the overlap a head dim of 128 runs at 0.88 of the speed. With ping-pong one
/// group's products run under the other's softmax.
template <bool masked>
__device__ __forceinline__ void attend(const HopperForwardParameters& p, const Layout& layout,
                                       const Consumer& me, const Sequence& sequence, const Scope& scope,
                                       RingPlace& place, const Sides& sides, int j, int row, int head,
                                       u32 (&probabilities)[block_n / 4], float (&output)[head_dim_v / 2],
                                       SoftmaxState& state, float scale_log2) {
  const RingPlace values = place;
  advance(place);
  float scores[block_n / 2], largest[2], correction[2];
  barrier_wait(layout.key_full(place.stage), place.parity);
  if (ping_pong) take_turn(me);
  multiply_query_keys(scores, me.query, me.keys + place.stage * (key_bytes / 16));
  barrier_wait(layout.value_full(values.stage), values.parity);
  multiply_probabilities_values(output, probabilities, me.values + values.stage * (value_bytes / 16));
  if (ping_pong) pass_turn(me);
  wait_scores<1>(scores);
  release(layout.key_empty(place.stage));
  if (clustered) release_elsewhere(layout.key_empty(place.stage));
  if (with_changed_scores) change_scores(scores, p.forward.scale, sequence, scope, row, j * block_n);
  if (masked && !masked_by_limits) mask_scores(scores, sequence, sides, row, j * block_n);
  if (masked && masked_by_limits) hide_scores_beyond(scores, sequence, scope, row, j * block_n);
  if (masked && masked_by_function) hide_scores(scores, sequence, scope, row, j * block_n);
  row_maxima(largest, scores);
  update_softmax<masked || scores_may_vanish>(scores, largest, state, correction, scale_log2);
  if (with_dropout) drop_probabilities(scores, p.forward.dropout, head, row, j * block_n);
  wait_output(output, probabilities, scores);
  release(layout.value_empty(values.stage));
  if (clustered) release_elsewhere(layout.value_empty(values.stage));
  pack_probabilities(probabilities, scores);
  if (!lazy_rescale || warp_any(correction[0] != 1.0f || correction[1] != 1.0f)) rescale(output, correction);
}

/// Of a tile that other consumers' rows see and this one's do not. Each consumer takes as many turns: one a
/// tile but the first that it attends to or, if there is none, that it passes over.
__device__ __forceinline__ void pass_over(const Layout& layout, const Consumer& me, RingPlace& place,
                                          bool takes_turn) {
  // Waiting first keeps the consumer from arriving twice in one phase.
  barrier_wait(layout.key_full(place.stage), place.parity);
  release(layout.key_empty(place.stage));
  barrier_wait(layout.value_full(place.stage), place.parity);
  release(layout.value_empty(place.stage));
  advance(place);
  if (ping_pong && takes_turn) {
    take_turn(me);
    pass_turn(me);
  }
}

__device__ __forceinline__ void consume(const HopperForwardParameters& p, const ExpressionArguments& e,
                                        const Layout& layout, int group) {
  Consumer me = {group, 0, warpgroup_descriptor(layout.key(0), 16),
                 warpgroup_descriptor(layout.value(0), panel_bytes)};
  const int thread = thread_index() % 128;
  int row_in_tile = group * group_rows + thread / 32 * 16 + thread % 32 / 4;
  if (grouped) row_in_tile /= pack_group;
  const float scale_log2 = with_changed_scores ? log2_e : p.forward.scale_log2;
  if (ping_pong && group == consumers - 1) named_barrier_arrive<256>(1);  // the first turn is group 0's
  RingPlace place = {0, 0};
  Tile next;
  int index = first_tile(p, layout, next);
#pragma unroll 1
  for (int round = 0; index < p.tiles; ++round) {
    const int slot = uniform(round % query_slots);
    me.query = warpgroup_descriptor(layout.query(slot, group), 16);
    // What the loops count with goes through uniform(): a single value that the compiler cannot prove equal
    // in all lanes puts the loop's descriptors into vector registers, for 2 to 6 % of the cycles.
    const Tile tile = next;
    const Sequence sequence = sequence_of(p.forward, tile);
    const Scope scope = scope_of(sequence, e, tile.batch, tile.head);
    KeyWalk walk = start_walk(sequence, scope, tile.row);
    if (with_block_list) follow_list(walk, p.forward, tile.batch, tile.head, tile.row);
    make_uniform(walk);
    int before = 0, after = 0;
    if (passes_over)
      limit_walk(walk, sequence, scope, tile.row + group * group_rows, group_rows, before, after);
    place = {uniform(place.stage), uniform(place.parity)};
    const int row = tile.row + row_in_tile, head = tile.batch * p.forward.heads + tile.head;
    float output[head_dim_v / 2];
#pragma unroll
    for (int i = 0; i < head_dim_v / 2; ++i) output[i] = 0.0f;
    SoftmaxState state;
    start_softmax(state);
    if (passes_over) {
#pragma unroll 1
      for (int i = 0; i < before; ++i) pass_over(layout, me, place, i > 0 || walk.visits(walk.ahead(0)));
    }
    barrier_wait(layout.query_full(slot, group), round / query_slots % 2);
    if (walk.visits(walk.ahead(0))) {
      u32 probabilities[block_n / 4];
      attend_first(p, layout, me, sequence, scope, place, sides_of(walk), walk.ahead(0), row, head,
                   !walk.visits(walk.ahead(1)), probabilities, state, scale_log2);
      walk.step(sequence, scope, tile.row);
      do {
        // Without a mask only the first tile can be partial: a third less to compile.
        if (limited_left || limited_right || masked_by_limits || masked_by_function || with_block_list) {
#pragma unroll 1
          for (; walk.visits(walk.ahead(0)) && (walk.is_above_full() || walk.is_below_full());
               walk.step(sequence, scope, tile.row))
            attend<true>(p, layout, me, sequence, scope, place, sides_of(walk), walk.ahead(0), row, head,
                         probabilities, output, state, scale_log2);
        }
#pragma unroll 1
        for (; walk.stays_full(); walk.step(sequence, scope, tile.row))
          attend<false>(p, layout, me, sequence, scope, place, sides_of(walk), walk.ahead(0), row, head,
                        probabilities, output, state, scale_log2);
      } while (walk.visits(walk.ahead(0)));
      release(layout.query_empty(slot, group));
      barrier_wait(layout.value_full(place.stage), place.parity);
      multiply_probabilities_values(output, probabilities, me.values + place.stage * (value_bytes / 16));
      wait_output(output, probabilities);
      release(layout.value_empty(place.stage));
      if (clustered) release_elsewhere(layout.value_empty(place.stage));
      advance(place);
    } else {
      release(layout.query_empty(slot, group));
    }
    if (passes_over) {
#pragma unroll 1
      for (int i = 0; i < after; ++i) pass_over(layout, me, place, true);
    }
    index = receive_tile(layout, round + found_by_producer, next);
    store_output(p.forward, output, state, tile, sequence, row);
  }
}
