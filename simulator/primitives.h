// What the emulations of several primitives share: checks that end the launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simulator/block.h"
#include "simulator/interface.h"

namespace tilewright::simulator {

/// Bytes of the running thread's own block; `what`: "a box of ".
void check_shared_bounds(Block& block, int thread, const char* what, uint32_t address, int bytes,
                         Place place);

/// Where `bytes` of shared memory lie; within bounds, aligned to their size, no barrier's.
std::byte* shared_at(Block& block, int thread, uint32_t address, int bytes, Place place);

/// Of the race checker's conflict.
[[noreturn]] void fail_conflict(Block& block, int thread, Place place, bool is_write);

/// The copy of a box to the running thread's block, once its barrier is set.
TensorCopy checked_box(Block& block, uint32_t destination, const void* map, const int* coordinates, int rank,
                       Place place);

/// Begins a copy whose place and barrier are set: the barrier must be initialised and known to the copy
/// engine.
void start_copy(Block& block, TensorCopy& copy);

/// Arrives at a barrier of any block of the cluster.
void arrive(Block& block, uint32_t barrier, Place place);

/// Shared bytes that a bulk copy or a box covers: within bounds, no barrier's.
void check_copied_bytes(Block& block, const char* what, uint32_t address, int bytes, Place place);

void check_global_alignment(Block& block, const void* address, int bytes, Place place);

// --- simulator/primitives_hopper.cpp

void named_barrier_wait(int id, int threads, int site);
void named_barrier_arrive(int id, int threads, int site);
void barrier_initialize(unsigned barrier, int arrivals, int site);
void fence_barrier_initialization(int site);
void barrier_arrive(unsigned barrier, int site);
void barrier_arrive_expecting(unsigned barrier, int bytes, int site);
void barrier_wait(unsigned barrier, int parity, int site);
void tensor_load(unsigned destination, const void* map, unsigned barrier, const int* coordinates, int rank,
                 int site);
void warpgroup_fence(int site);
void warpgroup_multiply(int n, float* d, const unsigned* a, unsigned descriptor_a, unsigned descriptor_b,
                        int accumulate, int transposed, int element_type, int site);
void warpgroup_commit(int site);
void warpgroup_wait(int groups_in_flight, int site);
void set_registers(int count, int increase, int site);

// --- simulator/primitives_cluster.cpp

int cluster_rank();
unsigned shared_base();
void cluster_barrier(int site);
unsigned map_to_block(unsigned address, int rank, int site);
void barrier_arrive_in_cluster(unsigned barrier, int site);
void tensor_load_multicast(unsigned destination, const void* map, unsigned barrier, const int* coordinates,
                           int rank, int blocks, int site);

// --- simulator/primitives_bulk.cpp

void store_matrix(unsigned address, const unsigned* registers, int transposed, int site);
void fence_async_shared(int site);
void bulk_load(unsigned destination, const void* source, int bytes, unsigned barrier, int site);
void bulk_reduce_add(float* destination, unsigned source, int bytes, int site);
void bulk_commit(int site);
void bulk_wait(int groups_in_flight, int only_reads, int site);

}  // namespace tilewright::simulator
