// The emulation of what the blocks of a cluster do together: they meet, reach each other's barriers, and
// share the boxes that the copy engine brings.
#include <bit>

#include <fmt/format.h>

#include "simulator/primitives.h"

namespace tilewright::simulator {

int cluster_rank() {
  return Block::current().rank();
}

unsigned shared_base() {
  return Block::current().shared_base();
}

void cluster_barrier(int site) {
  Block::current().cluster_barrier({Primitive::cluster_barrier, site});
}

namespace {

/// The same place in another block's shared memory.
uint32_t in_block(const Block& block, uint32_t address, int rank) {
  return address - block.shared_base() + static_cast<uint32_t>(rank) * block.shared_stride();
}

void check_block_lives(Block& block, int rank, Place place) {
  if (block.block_lives(rank)) return;
  block.fail(place, [&] {
    return fmt::format(
        "the block of rank {} has exited, and its shared memory is gone: a cluster_barrier before its end is "
        "missing",
        rank);
  });
}

}  // namespace

unsigned map_to_block(unsigned address, int rank, int site) {
  Block& block = Block::current();
  const Place place(Primitive::map_to_block, site);
  if (rank < 0 || rank >= block.cluster()) {
    block.fail(place,
               [&] { return fmt::format("rank {} in a cluster of {} blocks", rank, block.cluster()); });
  }
  check_shared_bounds(block, block.thread(), "", address, 1, place);
  return in_block(block, address, rank);
}

void barrier_arrive_in_cluster(unsigned address, int site) {
  Block& block = Block::current();
  const Place place(Primitive::barrier_arrive_in_cluster, site);
  if (block.cluster() > 1) check_block_lives(block, static_cast<int>(address / block.shared_stride()), place);
  arrive(block, address, place);
}

void tensor_load_multicast(unsigned destination, const void* map, unsigned barrier, const int* coordinates,
                           int rank, int blocks, int site) {
  Block& block = Block::current();
  const Place place(Primitive::tensor_load_multicast, site);
  TensorCopy copy = checked_box(block, destination, map, coordinates, rank, place);
  if (blocks <= 0 || blocks >> block.cluster() != 0) {
    block.fail(place, [&] {
      return fmt::format("blocks {:#x}, expected some of the {} lowest bits", blocks, block.cluster());
    });
  }
  check_shared_bounds(block, block.thread(), "", barrier, 8, place);
  for (int target = 0; target < block.cluster(); ++target) {
    if (!(blocks >> target & 1)) continue;
    check_block_lives(block, target, place);
    copy.destination = in_block(block, destination, target);
    copy.barrier = in_block(block, barrier, target);
    start_copy(block, copy);
  }
}

}  // namespace tilewright::simulator
