// The primitives of the backward pass: words of global and shared memory, sums and turns in global memory.

PRIMITIVE void global_load_16(u32 (&r)[4], const void* address)
DEVICE {
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(address));
}
SIMULATOR { simulator->global_load(r, address, 16, site); }

PRIMITIVE float global_load_float(const float* address)
DEVICE { float value; asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(address)); return value; }
SIMULATOR { float value; simulator->global_load(&value, address, 4, site); return value; }

PRIMITIVE void shared_store_word(u32 address, u32 value)
DEVICE { asm volatile("st.shared.b32 [%0], %1;" :: "r"(address), "r"(value) : "memory"); }
SIMULATOR { simulator->shared_store(address, &value, 4, site); }

PRIMITIVE u32 shared_load_word(u32 address)
DEVICE { u32 value; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory"); return value; }
SIMULATOR { u32 value; simulator->shared_load(&value, address, 4, site); return value; }

/// a * b rounded by itself, never fused with an addition.
PRIMITIVE float multiply_rounded(float a, float b)
DEVICE { float y; asm("mul.rn.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
SIMULATOR { return a * b; }

/// The smaller one; a NaN loses against a number (9.7.3.10).
PRIMITIVE float minimum(float a, float b)
DEVICE { float y; asm("min.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
SIMULATOR { return a != a || b < a ? b : a; }

/// Adds to a sum that other blocks add to as well, in whatever order; nothing comes back (9.7.13.7).
PRIMITIVE void global_sum(float* address, float value)
DEVICE { asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" :: "l"(address), "f"(value) : "memory"); }
SIMULATOR { simulator->global_sum(address, &value, 1, site); }

/// The same for four neighbouring sums, 16 bytes aligned; from sm_90 on.
PRIMITIVE void global_sum_4(float* address, float a, float b, float c, float d)
DEVICE {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :: "l"(address), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}
SIMULATOR { float values[4] = {a, b, c, d}; simulator->global_sum(address, values, 4, site); }

/// Takes a number: adds 1 and returns what was there.
PRIMITIVE int global_take_number(int* address)
DEVICE {
  int old;
  asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(old) : "l"(address) : "memory");
  return old;
}
SIMULATOR { return simulator->global_add(address, 1, site); }

/// Ends a turn: adds 1; who has waited for the turn sees all that this thread, and those it has met, have written.
PRIMITIVE void global_end_turn(int* address)
DEVICE { asm volatile("fence.acq_rel.gpu; red.relaxed.gpu.global.add.s32 [%0], 1;" :: "l"(address) : "memory"); }
SIMULATOR { simulator->global_add(address, 1, site); }

/// Waits until as many turns have ended.
PRIMITIVE void global_wait_for_turn(const int* address, int turn)
DEVICE {
  int now;
  do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(address) : "memory");
  while (now < turn);
}
SIMULATOR { simulator->global_wait(address, turn, site); }
