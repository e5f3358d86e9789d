// The primitives: the only place where generated code touches the machine. Each has one signature and two bodies,
// DEVICE (inline PTX; section numbers are those of the PTX ISA manual 8.5) and SIMULATOR (`site` is the caller's line).

/// The mask tells the compiler what it cannot know of a register: not negative. Quotients and remainders by powers of two
/// are single instructions then, where of a signed number they are four.
PRIMITIVE int thread_index()
DEVICE { u32 index; asm("mov.u32 %0, %%tid.x;" : "=r"(index)); return index & 1023; }
SIMULATOR { return simulator->thread_index(); }

/// Volatile, so that a second call reads it again instead of holding what was computed from the first.
PRIMITIVE int block_index()
DEVICE { int index; asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index)); return index; }
SIMULATOR { return simulator->block_index(); }

/// Blocks of the launch.
PRIMITIVE int grid_blocks()
DEVICE { int count; asm("mov.u32 %0, %%nctaid.x;" : "=r"(count)); return count; }
SIMULATOR { return simulator->grid_blocks(); }

/// Address of the block's dynamic shared memory in the shared window; all shared addresses are 32-bit offsets from it.
PRIMITIVE u32 shared_base()
DEVICE {
  extern __shared__ __attribute__((aligned(1024))) unsigned char dynamic_shared_memory[];
  u32 address;
  asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(address) : "l"(dynamic_shared_memory));
  return address;
}
SIMULATOR { return simulator->shared_base(); }

/// The same value, of which the compiler knows nothing: what is derived from it inside a loop is not kept over the loop.
PRIMITIVE u32 opaque(u32 value)
DEVICE { asm volatile("" : "+r"(value)); return value; }
SIMULATOR { return value; }

/// All threads of the block meet; orders shared and global memory among them (9.7.13.1).
PRIMITIVE void block_barrier()
DEVICE { asm volatile("bar.sync 0;" ::: "memory"); }
SIMULATOR { simulator->block_barrier(site); }

/// The value that the lane `lane ^ mask` holds (9.7.8.6).
PRIMITIVE u32 shuffle_xor(u32 value, int mask)
DEVICE {
  u32 other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(other) : "r"(value), "r"(mask));
  return other;
}
SIMULATOR { return simulator->shuffle_xor(value, mask, site); }

PRIMITIVE float shuffle_xor(float value, int mask)
DEVICE {
  float other;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(mask));
  return other;
}
SIMULATOR { return __builtin_bit_cast(float, simulator->shuffle_xor(__builtin_bit_cast(u32, value), mask, site)); }

/// Whether the predicate holds in any lane of the warp (9.7.13.5).
PRIMITIVE bool warp_any(bool predicate)
DEVICE {
  int any;
  asm volatile("{ .reg .pred p, q; setp.ne.b32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff; selp.b32 %0, 1, 0, q; }"
               : "=r"(any) : "r"((int)predicate));
  return any;
}
SIMULATOR { return simulator->warp_any(predicate, site); }

/// Bit i: whether the predicate holds in lane i (9.7.13.5).
PRIMITIVE u32 warp_ballot(bool predicate)
DEVICE {
  u32 bits;
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }" : "=r"(bits) : "r"((int)predicate));
  return bits;
}
SIMULATOR { return simulator->warp_ballot(predicate, site); }

/// The place of the highest bit that is set; `bits` is not 0 (9.7.1.16).
PRIMITIVE int highest_bit(u32 bits)
DEVICE { int place; asm("bfind.u32 %0, %1;" : "=r"(place) : "r"(bits)); return place; }
SIMULATOR { return 31 - __builtin_clz(bits); }

/// The same value in all lanes, and known to be: the result of redux lives in a uniform register, which spares two moves
/// for every descriptor derived from it. A shuffle's does not.
PRIMITIVE int uniform(int value)
DEVICE { int same; asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(same) : "r"(value)); return same; }
SIMULATOR { return simulator->uniform(value, site); }

/// 2^x, relative error at most 2^-22; 2^-inf = 0 (9.7.3.20).
PRIMITIVE float exp2_approximate(float x)
DEVICE { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
SIMULATOR { return simulator->exp2(x); }

/// log2(x), absolute error at most 2^-22 near 1; log2(0) = -inf (9.7.3.19).
PRIMITIVE float log2_approximate(float x)
DEVICE { float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
SIMULATOR { return simulator->log2(x); }

/// 1/x, at most 1 ulp off; 1/inf = 0 (9.7.3.13).
PRIMITIVE float reciprocal_approximate(float x)
DEVICE { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
SIMULATOR { return 1.0f / x; }

PRIMITIVE float absolute(float x)
DEVICE { float y; asm("abs.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
SIMULATOR { return x < 0.0f ? -x : x; }

/// The larger one; a NaN loses against a number (9.7.3.11).
PRIMITIVE float maximum(float a, float b)
DEVICE { float y; asm("max.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
SIMULATOR { return a != a || b > a ? b : a; }

/// Four 8x8 matrices of 16-bit elements: lane i supplies the address of row i % 8 of matrix i / 8 (9.7.14.5.15).
PRIMITIVE void load_matrix_x4(u32 (&r)[4], u32 address)
DEVICE {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
SIMULATOR { simulator->load_matrix_x4(r, address, 0, site); }

/// The same, each matrix transposed.
PRIMITIVE void load_matrix_x4_transposed(u32 (&r)[4], u32 address)
DEVICE {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
SIMULATOR { simulator->load_matrix_x4(r, address, 1, site); }

/// Starts the copy of 16 bytes from global to shared memory past L1; `bytes` 0 writes zeros and reads nothing (9.7.9.25.3.1).
PRIMITIVE void copy_async_16(u32 destination, const void* source, int bytes)
DEVICE {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(destination), "l"(source), "r"(bytes) : "memory");
}
SIMULATOR { simulator->copy_async_16(destination, source, bytes, site); }

/// Closes this thread's open group of copies (9.7.9.25.3.2).
PRIMITIVE void copy_async_commit()
DEVICE { asm volatile("cp.async.commit_group;" ::: "memory"); }
SIMULATOR { simulator->copy_async_commit(site); }

/// Waits until at most `groups` of this thread's closed groups are in flight; others see the data after a barrier.
template <int groups>
PRIMITIVE void copy_async_wait()
DEVICE { asm volatile("cp.async.wait_group %0;" :: "n"(groups) : "memory"); }
SIMULATOR { simulator->copy_async_wait(groups, site); }

PRIMITIVE void shared_store(u32 address, int value)
DEVICE { asm volatile("st.shared.b32 [%0], %1;" :: "r"(address), "r"(value) : "memory"); }
SIMULATOR { simulator->shared_store(address, &value, 4, site); }

PRIMITIVE int shared_load(u32 address)
DEVICE { int value; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory"); return value; }
SIMULATOR { int value; simulator->shared_load(&value, address, 4, site); return value; }

PRIMITIVE int global_load(const int* address)
DEVICE { int value; asm volatile("ld.global.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory"); return value; }
SIMULATOR { int value; simulator->global_load(&value, address, 4, site); return value; }

PRIMITIVE float global_load(const float* address)
DEVICE { float value; asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(address) : "memory"); return value; }
SIMULATOR { float value; simulator->global_load(&value, address, 4, site); return value; }

/// One element of a tensor that no kernel writes meanwhile (9.7.9.9). Not volatile: equal loads are one.
PRIMITIVE int load_int32(const void* address)
DEVICE { int value; asm("ld.global.nc.s32 %0, [%1];" : "=r"(value) : "l"(address)); return value; }
SIMULATOR { int value; simulator->global_load(&value, address, 4, site); return value; }

PRIMITIVE float load_float32(const void* address)
DEVICE { float value; asm("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(address)); return value; }
SIMULATOR { float value; simulator->global_load(&value, address, 4, site); return value; }

PRIMITIVE bool load_bool(const void* address)
DEVICE { u32 value; asm("ld.global.nc.u8 %0, [%1];" : "=r"(value) : "l"(address)); return value != 0; }
SIMULATOR { unsigned char value; simulator->global_load(&value, address, 1, site); return value != 0; }

PRIMITIVE float load_fp16(const void* address)
DEVICE {
  float value;
  asm("{ .reg .b16 half; ld.global.nc.b16 half, [%1]; cvt.f32.f16 %0, half; }" : "=f"(value) : "l"(address));
  return value;
}
SIMULATOR { u16 bits; simulator->global_load(&bits, address, 2, site); return simulator->unpack(bits, 0); }

PRIMITIVE float load_bf16(const void* address)
DEVICE {
  u16 bits;
  asm("ld.global.nc.b16 %0, [%1];" : "=h"(bits) : "l"(address));
  float value;
  asm("mov.b32 %0, {%1, %2};" : "=f"(value) : "h"((u16)0), "h"(bits));
  return value;
}
SIMULATOR { u16 bits; simulator->global_load(&bits, address, 2, site); return simulator->unpack(bits, 1); }

PRIMITIVE void global_store_16(void* address, u32 a, u32 b, u32 c, u32 d)
DEVICE { asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" :: "l"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory"); }
SIMULATOR { u32 words[4] = {a, b, c, d}; simulator->global_store(address, words, 16, site); }

PRIMITIVE void global_store_float(float* address, float value)
DEVICE { asm volatile("st.global.f32 [%0], %1;" :: "l"(address), "f"(value) : "memory"); }
SIMULATOR { simulator->global_store(address, &value, 4, site); }

PRIMITIVE void global_store_int(int* address, int value)
DEVICE { asm volatile("st.global.b32 [%0], %1;" :: "l"(address), "r"(value) : "memory"); }
SIMULATOR { simulator->global_store(address, &value, 4, site); }
