// The primitives that depend on the element type: fp16.

/// Two floats rounded to nearest even, `low` in the lower half (9.7.9.21).
PRIMITIVE u32 pack_element(float low, float high)
DEVICE { u32 pair; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low)); return pair; }
SIMULATOR { return simulator->pack_two(low, high, 0); }

/// d (16x8, fp32) += a (16x16, row major) * b (16x8, column major), by one warp (9.7.14.5.8).
PRIMITIVE void matrix_multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
DEVICE {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
SIMULATOR { simulator->matrix_multiply_16x8x16(d, a, b0, b1, 0, site); }

/// d = a * b: the first product of a sum needs no zeros written first.
PRIMITIVE void matrix_multiply_first(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
DEVICE {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
SIMULATOR {
  d[0] = d[1] = d[2] = d[3] = 0.0f;
  simulator->matrix_multiply_16x8x16(d, a, b0, b1, 0, site);
}

PRIMITIVE float load_element(const u16* address)
DEVICE {
  float value;
  asm volatile("{ .reg .b16 element; ld.global.b16 element, [%1]; cvt.f32.f16 %0, element; }"
               : "=f"(value) : "l"(address) : "memory");
  return value;
}
SIMULATOR {
  u16 bits;
  simulator->global_load(&bits, address, 2, site);
  const u32 sign = (u32)(bits & 0x8000) << 16, rest = (u32)(bits & 0x7fff) << 13;
  const bool finite = (bits & 0x7c00) != 0x7c00;
  const float magnitude = finite ? __builtin_bit_cast(float, rest) * 0x1p112f : __builtin_bit_cast(float, rest | 0x7f800000);
  return __builtin_bit_cast(float, __builtin_bit_cast(u32, magnitude) | sign);
}

/// The two elements of a pair as floats.
PRIMITIVE float unpack_low(u32 pair)
DEVICE { float y; asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low; }" : "=f"(y) : "r"(pair)); return y; }
SIMULATOR { return simulator->unpack(pair & 0xffffu, 0); }

PRIMITIVE float unpack_high(u32 pair)
DEVICE { float y; asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high; }" : "=f"(y) : "r"(pair)); return y; }
SIMULATOR { return simulator->unpack(pair >> 16, 0); }
