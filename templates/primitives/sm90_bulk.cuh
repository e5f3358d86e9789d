// The primitives of Hopper that the backward pass adds: matrices from registers to shared memory, bulk copies of plain
// bytes, sums from shared into global memory.

/// Four 8x8 matrices of 16-bit elements, each transposed, to shared memory: lane i supplies the address of row i % 8 of
/// matrix i / 8 (9.7.14.5.16).
PRIMITIVE void store_matrix_x4_transposed(u32 address, u32 a, u32 b, u32 c, u32 d)
DEVICE {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
SIMULATOR { const u32 registers[4] = {a, b, c, d}; simulator->store_matrix_x4(address, registers, 1, site); }

/// The same, as they are.
PRIMITIVE void store_matrix_x4(u32 address, u32 a, u32 b, u32 c, u32 d)
DEVICE {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
SIMULATOR { const u32 registers[4] = {a, b, c, d}; simulator->store_matrix_x4(address, registers, 0, site); }

/// This thread's stores to shared memory so far become visible to products and bulk copies that come after (9.7.13.4).
PRIMITIVE void fence_async_shared()
DEVICE { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
SIMULATOR { simulator->fence_async_shared(site); }

/// The lanes of the warp meet; orders shared memory among them (9.7.13.2).
PRIMITIVE void warp_barrier()
DEVICE { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
SIMULATOR { simulator->warp_barrier(0xffffffffu, site); }

/// Starts the copy of `bytes` (a multiple of 16) to shared memory; they arrive at the barrier (9.7.9.25.4.1).
PRIMITIVE void bulk_load(u32 destination, const void* source, int bytes, u32 barrier)
DEVICE {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(destination), "l"(source), "r"(bytes), "r"(barrier) : "memory");
}
SIMULATOR { simulator->bulk_load(destination, source, bytes, barrier, site); }

/// Adds floats of shared memory to global memory, in any order among all blocks; asynchronous (9.7.9.25.4.2).
PRIMITIVE void bulk_reduce_add(float* destination, u32 source, int bytes)
DEVICE {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
               :: "l"(destination), "r"(source), "r"(bytes) : "memory");
}
SIMULATOR { simulator->bulk_reduce_add(destination, source, bytes, site); }

/// Closes a group of this thread's bulk copies out of shared memory.
PRIMITIVE void bulk_commit()
DEVICE { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
SIMULATOR { simulator->bulk_commit(site); }

/// Waits until at most `groups` groups of this thread still read shared memory, which may be written again then.
template <int groups>
PRIMITIVE void bulk_wait_reads()
DEVICE { asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(groups) : "memory"); }
SIMULATOR { simulator->bulk_wait(groups, 1, site); }

/// Waits until at most `groups` groups of this thread have not done all that they do.
template <int groups>
PRIMITIVE void bulk_wait()
DEVICE { asm volatile("cp.async.bulk.wait_group %0;" :: "n"(groups) : "memory"); }
SIMULATOR { simulator->bulk_wait(groups, 0, site); }

/// What this thread knows of global memory comes before its bulk copies and sums from here on (9.7.13.4).
PRIMITIVE void fence_async_global()
DEVICE { asm volatile("fence.proxy.async.global;" ::: "memory"); }
SIMULATOR { (void)site; }

PRIMITIVE void shared_store_16(u32 address, float a, float b, float c, float d)
DEVICE { asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(address), "f"(a), "f"(b), "f"(c), "f"(d) : "memory"); }
SIMULATOR { const float values[4] = {a, b, c, d}; simulator->shared_store(address, values, 16, site); }

PRIMITIVE void shared_load_pair(float (&value)[2], u32 address)
DEVICE { asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(value[0]), "=f"(value[1]) : "r"(address) : "memory"); }
SIMULATOR { simulator->shared_load(value, address, 8, site); }

PRIMITIVE void global_load_16(float (&value)[4], const float* address)
DEVICE {
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3]) : "l"(address));
}
SIMULATOR { simulator->global_load(value, address, 16, site); }

/// Names registers that a product wrote, behind the wait for it, so that no use of them moves above.
template <int count>
PRIMITIVE void settle(float (&value)[count])
DEVICE {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(value[i]) :: "memory");
}
SIMULATOR { (void)value; (void)site; }

/// The same for registers that a product read: they stay as they are until here.
template <int count>
PRIMITIVE void settle(u32 (&value)[count])
DEVICE {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" :: "r"(value[i]) : "memory");
}
SIMULATOR { (void)value; (void)site; }
