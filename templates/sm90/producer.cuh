// The producer: one thread that keeps the copy engine ahead of the consumers. Where a warp must look for the
// tiles to visit, the other lanes of its warp walk with it.

__device__ __forceinline__ void load_query(const HopperForwardParameters& p, const Layout& layout, int slot,
                                           int group, const Tile& tile) {
  barrier_arrive_expecting(layout.query_full(slot, group), query_bytes);
  if (grouped) load_grouped_query(p, layout, slot, group, tile);
  if (!grouped)
#pragma unroll
    for (int panel = 0; panel < panels_qk; ++panel)
      tensor_load(layout.query(slot, group) + panel * query_panel_bytes, &p.q_map,
                  layout.query_full(slot, group), panel * 64,
                  tile.first_query + tile.row + group * group_rows, tile.head, tile.slice());
}

__device__ __forceinline__ void load_keys(const HopperForwardParameters& p, const Layout& layout,
                                          const RingPlace& place, int key, const Tile& tile) {
  if (producer_is_warp && thread_index() != 0) return;
  barrier_wait(layout.key_empty(place.stage), place.parity ^ 1);
  barrier_arrive_expecting(layout.key_full(place.stage), key_bytes);
  if (clustered)
    load_shares<panels_qk>(layout.key(place.stage), &p.k_map, layout.key_full(place.stage), key,
                           tile.head / gqa_ratio, tile.slice());
  if (!clustered)
#pragma unroll
    for (int panel = 0; panel < panels_qk; ++panel)
      tensor_load(layout.key(place.stage) + panel * panel_bytes, &p.k_map, layout.key_full(place.stage),
                  panel * 64, tile.first_key + key, tile.head / gqa_ratio, tile.slice());
}

__device__ __forceinline__ void load_values(const HopperForwardParameters& p, const Layout& layout,
                                            const RingPlace& place, int key, const Tile& tile) {
  if (packed_layout && holds_other_values(tile, key)) return load_last_values(p, layout, place, key, tile);
  if (producer_is_warp && thread_index() != 0) return;
  barrier_wait(layout.value_empty(place.stage), place.parity ^ 1);
  barrier_arrive_expecting(layout.value_full(place.stage), value_bytes);
  if (clustered)
    load_shares<panels_v>(layout.value(place.stage), &p.v_map, layout.value_full(place.stage), key,
                          tile.head / gqa_ratio, tile.slice());
  if (!clustered)
#pragma unroll
    for (int panel = 0; panel < panels_v; ++panel)
      tensor_load(layout.value(place.stage) + panel * panel_bytes, &p.v_map, layout.value_full(place.stage),
                  panel * 64, tile.first_key + key, tile.head / gqa_ratio, tile.slice());
}

/// Per tile: the last K, then Q, then K one tile ahead of V, as the consumers take them. The loops stay
/// rolled: unrolled they spill at the producer's few registers.
__device__ __forceinline__ void produce(const HopperForwardParameters& p, const ExpressionArguments& e,
                                        const Layout& layout) {
  RingPlace place = {0, 0};
  int index = block_index();
  if (clustered) index /= cluster;
  TileSearch search = start_search(p.forward);
  Tile tile = find_tile(p, search, index);
  if (packed_layout) publish_tile(layout, 0, index, tile);
#pragma unroll 1
  for (int round = 0; index < p.tiles; ++round) {
    const Sequence sequence = sequence_of(p.forward, tile);
    const Scope scope = scope_of(sequence, e, tile.batch, tile.head);
    KeyWalk walk = start_walk(sequence, scope, tile.row);
    if (with_block_list) follow_list(walk, p.forward, tile.batch, tile.head, tile.row);
    const bool nothing = walk.visits_none();
    if (walk.visits(walk.ahead(0))) load_keys(p, layout, place, walk.ahead(0) * block_n, tile);
#pragma unroll 1
    for (int group = 0; group < consumers; ++group) {
      if (producer_is_warp && thread_index() != 0) continue;
      barrier_wait(layout.query_empty(round % query_slots, group), round / query_slots % 2 ^ 1);
      load_query(p, layout, round % query_slots, group, tile);
    }
#pragma unroll 1
    for (; walk.visits(walk.ahead(0)); walk.step(sequence, scope, tile.row)) {
      RingPlace next = place;
      advance(next);
      const int ahead = walk.ahead(1);
      if (walk.visits(ahead)) load_keys(p, layout, next, ahead * block_n, tile);
      if (!walk.visits(ahead)) index = next_tile(p, index);  // arrives under the wait for the last values
      load_values(p, layout, place, walk.ahead(0) * block_n, tile);
      place = next;
    }
    if (nothing) index = next_tile(p, index);
    if (index < p.tiles) tile = find_tile(p, search, index);
    if (packed_layout && ends_at(p, tile)) index = p.tiles;
    publish_tile(layout, round + found_by_producer, index, tile);
  }
  finish_tiles(p);
}
