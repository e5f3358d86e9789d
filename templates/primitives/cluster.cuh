// The primitives of a cluster: blocks on neighbouring multiprocessors that reach each other's shared memory.

/// Of the block in its cluster.
PRIMITIVE int cluster_rank()
DEVICE { int rank; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); return rank; }
SIMULATOR { return simulator->cluster_rank(); }

/// All threads of the cluster meet; orders shared and global memory among them (9.7.13.3).
PRIMITIVE void cluster_barrier()
DEVICE { asm volatile("barrier.cluster.arrive.release;\n barrier.cluster.wait.acquire;" ::: "memory"); }
SIMULATOR { simulator->cluster_barrier(site); }

/// The same place in the shared memory of another block (9.7.9.23).
PRIMITIVE u32 map_to_block(u32 address, int rank)
DEVICE { u32 mapped; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank)); return mapped; }
SIMULATOR { return simulator->map_to_block(address, rank, site); }

/// Arrives at a mapped barrier. Without a scope: .release.cluster would drain the thread's memory accesses first, at a
/// quarter of the kernel's time, and what is to be ordered here are reads that a wait has finished.
PRIMITIVE void barrier_arrive_in_cluster(u32 mapped)
DEVICE { asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" :: "r"(mapped) : "memory"); }
SIMULATOR { simulator->barrier_arrive_in_cluster(mapped, site); }

/// As tensor_load, for every block of the cluster whose bit is set in `blocks`: to the same place in each, where all bytes
/// arrive at the same barrier (9.7.9.25.5.2).
PRIMITIVE void tensor_load_multicast(u32 destination, const TensorMap* map, u32 barrier, int c0, int c1, int c2, int c3, int blocks)
DEVICE {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
               :: "r"(destination), "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"((u16)blocks) : "memory");
}
SIMULATOR {
  int coordinates[4] = {c0, c1, c2, c3};
  simulator->tensor_load_multicast(destination, map, barrier, coordinates, 4, blocks, site);
}
