// The producer: one thread that keeps the copy engine ahead of the consumers, and a warp that sends dQ away.

__device__ __forceinline__ void load_keys_and_values(const HopperBackwardParameters& p,
                                                     const BackwardLayout& layout, const KeyTile& tile,
                                                     int parity) {
  barrier_wait(layout.key_empty(), parity ^ 1);
  barrier_arrive_expecting(layout.key_full(), key_bytes);
#pragma unroll
  for (int panel = 0; panel < panels_qk; ++panel)
    tensor_load(layout.key() + panel * key_panel_bytes, &p.k_map, layout.key_full(), panel * 64, tile.key,
                tile.head, tile.batch);
  barrier_arrive_expecting(layout.value_full(), value_bytes);
#pragma unroll
  for (int panel = 0; panel < panels_v; ++panel)
    tensor_load(layout.value() + panel * key_panel_bytes, &p.v_map, layout.value_full(), panel * 64, tile.key,
                tile.head, tile.batch);
}

/// Tile m of a head's query rows. What can be worked out here is: the producer has few registers.
__device__ __forceinline__ void load_rows(const HopperBackwardParameters& p, const BackwardLayout& layout,
                                          const RingPlace& place, int m, int head, int batch) {
  const int row = m * block_m,
            tile = (batch * p.backward.forward.heads + head) * p.backward.forward.m_tiles + m;
  const long long terms = (long long)tile * block_m;  // in the workspace
  barrier_wait(layout.query_empty(place.stage), place.parity ^ 1);
  barrier_arrive_expecting(layout.query_full(place.stage), query_bytes + row_terms_bytes);
#pragma unroll
  for (int panel = 0; panel < panels_qk; ++panel)
    tensor_load(layout.query(place.stage) + panel * row_panel_bytes, &p.q_map, layout.query_full(place.stage),
                panel * 64, row, head, batch);
  bulk_load(layout.lse(place.stage), p.backward.lse_log2 + terms, row_terms_bytes,
            layout.query_full(place.stage));
  barrier_wait(layout.gradient_empty(place.stage), place.parity ^ 1);
  barrier_arrive_expecting(layout.gradient_full(place.stage), gradient_bytes + row_terms_bytes);
#pragma unroll
  for (int panel = 0; panel < panels_v; ++panel)
    tensor_load(layout.gradient(place.stage) + panel * row_panel_bytes, &p.d_out_map,
                layout.gradient_full(place.stage), panel * 64, row, head, batch);
  bulk_load(layout.row_term(place.stage), p.backward.row_terms + terms, row_terms_bytes,
            layout.gradient_full(place.stage));
}

/// Per tile of keys: K, V, then Q and dO of all rows that see them, of one query head of the group after the
/// other.
__device__ __forceinline__ void produce_backward(const HopperBackwardParameters& p,
                                                 const BackwardLayout& layout) {
  int index = first_key_tile(layout), count = 0;
#pragma unroll 1
  for (int round = 0; index < p.backward.key_blocks; ++round) {
    const KeyTile tile = key_tile_at(p.backward, index);
    const RowTiles rows = row_tiles(p.backward, tile);
    // Also for a tile without rows: the round alone says then where the barriers stand.
    load_keys_and_values(p, layout, tile, round & 1);
    int head = tile.head * gqa_ratio;
#pragma unroll 1
    do {
#pragma unroll 1
      for (int m = rows.begin; m < rows.end; ++m) {
        load_rows(p, layout, ring_place(count++), m, head, tile.batch);
      }
    } while (++head % gqa_ratio != 0);
    // Late, so that blocks with short tiles take more of them: under a causal mask this is worth up to 15 %.
    index = next_key_tile(p);
    publish_key_tile(layout, round, index);
  }
  finish_key_tiles(p);
}

/// Named barriers between a consumer and the warp that sends its dQ: the consumer's buffer is free, or full.
__device__ __forceinline__ int dq_free(int group) {
  return 1 + group;
}

__device__ __forceinline__ int dq_full(int group) {
  return 3 + group;
}

/// One warp adds the consumers' dQ to the sums in global memory, block after block, as the consumers fill
/// their buffers.
__device__ __forceinline__ void send_dq(const HopperBackwardParameters& p, const BackwardLayout& layout) {
  const bool sender = thread_index() % 32 == 0;
  named_barrier_arrive<160>(dq_free(0));
  named_barrier_arrive<160>(dq_free(1));
  int index = first_key_tile(layout);
#pragma unroll 1
  for (int round = 0; index < p.backward.key_blocks; ++round) {
    const KeyTile tile = key_tile_at(p.backward, index);
    const RowTiles rows = row_tiles(p.backward, tile);
#pragma unroll 1
    for (int head = tile.head * gqa_ratio; head < tile.head * gqa_ratio + gqa_ratio; ++head) {
      float* to = p.backward.dq_sums +
                  (((long long)tile.batch * p.backward.forward.heads + head) * p.backward.forward.m_tiles +
                   rows.begin) *
                      dq_tile_floats;
#pragma unroll 1
      for (int m = rows.begin; m < rows.end; ++m) {
        named_barrier_wait<160>(dq_full(0));
        if (sender) {
          bulk_reduce_add(to, layout.dq(0), dq_group_bytes);
          bulk_commit();
        }
        named_barrier_wait<160>(dq_full(1));
        if (sender) {
          bulk_reduce_add(to + dq_group_bytes / 4, layout.dq(1), dq_group_bytes);
          bulk_commit();
          bulk_wait_reads<1>();
        }
        warp_barrier();
        named_barrier_arrive<160>(dq_free(0));
        if (sender) bulk_wait_reads<0>();
        warp_barrier();
        named_barrier_arrive<160>(dq_free(1));
        to += dq_tile_floats;
      }
    }
    index = receive_key_tile(layout, round);
  }
}
