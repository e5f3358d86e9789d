// The primitives that depend on the element type: bf16.

/// Two floats rounded to nearest even, `low` in the lower half (9.7.9.21).
PRIMITIVE u32 pack_element(float low, float high)
DEVICE { u32 pair; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low)); return pair; }
SIMULATOR { return simulator->pack_two(low, high, 1); }

/// d (16x8, fp32) += a (16x16, row major) * b (16x8, column major), by one warp (9.7.14.5.8).
PRIMITIVE void matrix_multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
DEVICE {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
SIMULATOR { simulator->matrix_multiply_16x8x16(d, a, b0, b1, 1, site); }

/// d = a * b: the first product of a sum needs no zeros written first.
PRIMITIVE void matrix_multiply_first(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
DEVICE {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
SIMULATOR {
  d[0] = d[1] = d[2] = d[3] = 0.0f;
  simulator->matrix_multiply_16x8x16(d, a, b0, b1, 1, site);
}

PRIMITIVE float load_element(const u16* address)
DEVICE {
  float value;
  asm volatile("{ .reg .b16 element, zero; ld.global.b16 element, [%1]; mov.b16 zero, 0; mov.b32 %0, {zero, element}; }"
               : "=f"(value) : "l"(address) : "memory");
  return value;
}
SIMULATOR { u16 bits; simulator->global_load(&bits, address, 2, site); return __builtin_bit_cast(float, (u32)bits << 16); }

/// The two elements of a pair as floats.
PRIMITIVE float unpack_low(u32 pair)
DEVICE { float y; asm("mov.b32 %0, %1;" : "=f"(y) : "r"(pair << 16)); return y; }
SIMULATOR { return simulator->unpack(pair & 0xffffu, 1); }

PRIMITIVE float unpack_high(u32 pair)
DEVICE { float y; asm("mov.b32 %0, %1;" : "=f"(y) : "r"(pair & 0xffff0000u)); return y; }
SIMULATOR { return simulator->unpack(pair >> 16, 1); }
