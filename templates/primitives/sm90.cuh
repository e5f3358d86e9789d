// The primitives of Hopper: barriers in shared memory, the tensor copy engine, named barriers, register budgets.

/// Sets up a barrier of `arrivals` arrivals a phase (9.7.13.15.9). One thread does it, then fences, then all meet.
PRIMITIVE void barrier_initialize(u32 barrier, int arrivals)
DEVICE { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory"); }
SIMULATOR { simulator->barrier_initialize(barrier, arrivals, site); }

/// Makes initialised barriers known to the copy engine (9.7.13.4).
PRIMITIVE void fence_barrier_initialization()
DEVICE { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
SIMULATOR { simulator->fence_barrier_initialization(site); }

/// Waits for the launch before; does nothing without programmatic serialization, which alone starts earlier (9.7.13.13).
PRIMITIVE void wait_for_previous_launch()
DEVICE { asm volatile("griddepcontrol.wait;" ::: "memory"); }
SIMULATOR { (void)site; }

/// The next launch may start, as far as this block goes, and run up to its own wait.
PRIMITIVE void let_next_launch_start()
DEVICE { asm volatile("griddepcontrol.launch_dependents;"); }
SIMULATOR { (void)site; }

PRIMITIVE void barrier_arrive(u32 barrier)
DEVICE { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory"); }
SIMULATOR { simulator->barrier_arrive(barrier, site); }

/// Arrives and adds the bytes that the copy engine will bring in this phase (9.7.13.15.13).
PRIMITIVE void barrier_arrive_expecting(u32 barrier, int bytes)
DEVICE { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory"); }
SIMULATOR { simulator->barrier_arrive_expecting(barrier, bytes, site); }

/// Waits until the phase of this parity is over: 0 the first, 1 the second and so on; a fresh barrier counts as past parity 1.
PRIMITIVE void barrier_wait(u32 barrier, int parity)
DEVICE {
  asm volatile("{ .reg .pred done;\n"
               "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again; }" :: "r"(barrier), "r"(parity) : "memory");
}
SIMULATOR { simulator->barrier_wait(barrier, parity, site); }

/// Starts the copy of a box of a rank-4 tensor, zero outside of it; all its bytes arrive at the barrier (9.7.9.25.5.2).
PRIMITIVE void tensor_load(u32 destination, const TensorMap* map, u32 barrier, int c0, int c1, int c2, int c3)
DEVICE {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
               :: "r"(destination), "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
SIMULATOR { int coordinates[4] = {c0, c1, c2, c3}; simulator->tensor_load(destination, map, barrier, coordinates, 4, site); }

/// Barrier `id` (1 to 15) among `threads` threads: waits for all of them.
template <int threads>
PRIMITIVE void named_barrier_wait(int id)
DEVICE { asm volatile("bar.sync %0, %1;" :: "r"(id), "n"(threads) : "memory"); }
SIMULATOR { simulator->named_barrier_wait(id, threads, site); }

/// Counts as arrived without waiting.
template <int threads>
PRIMITIVE void named_barrier_arrive(int id)
DEVICE { asm volatile("bar.arrive %0, %1;" :: "r"(id), "n"(threads) : "memory"); }
SIMULATOR { simulator->named_barrier_arrive(id, threads, site); }

/// Gives registers back, or takes more: the block's sum may not pass what it was launched with (9.7.19.5).
template <int registers>
PRIMITIVE void release_registers()
DEVICE { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(registers)); }
SIMULATOR { simulator->set_registers(registers, 0, site); }

template <int registers>
PRIMITIVE void take_registers()
DEVICE { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(registers)); }
SIMULATOR { simulator->set_registers(registers, 1, site); }

/// The warp's first lane reads, by a predicate instead of a branch; the others get 0.
PRIMITIVE int shared_load_first_lane(u32 address)
DEVICE {
  int value = 0;
  asm volatile("{ .reg .pred p; .reg .u32 i; mov.u32 i, %%laneid; setp.eq.u32 p, i, 0; @p ld.shared.b32 %0, [%1]; }" : "+r"(value) : "r"(address) : "memory");
  return value;
}
SIMULATOR {
  int value = 0;
  if (simulator->thread_index() % 32 == 0) simulator->shared_load(&value, address, 4, site);
  return value;
}

/// Adds to global memory, relaxed among all blocks, and returns what was there (9.7.13.6).
PRIMITIVE int global_add(int* address, int value)
DEVICE {
  int old;
  asm volatile("atom.global.add.relaxed.gpu.s32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(value) : "memory");
  return old;
}
SIMULATOR { return simulator->global_add(address, value, site); }

PRIMITIVE void global_store(int* address, int value)
DEVICE { asm volatile("st.global.b32 [%0], %1;" :: "l"(address), "r"(value) : "memory"); }
SIMULATOR { simulator->global_store(address, &value, 4, site); }

/// Orders this thread's global accesses before its later ones, for all blocks (9.7.13.4).
PRIMITIVE void fence_device()
DEVICE { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
SIMULATOR { (void)site; }

/// Waits until at most `groups` groups of this warpgroup's products are unfinished; their accumulators may be read then.
template <int groups>
PRIMITIVE void warpgroup_wait()
DEVICE { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(groups) : "memory"); }
SIMULATOR { simulator->warpgroup_wait(groups, site); }
