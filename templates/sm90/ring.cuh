// Rings of tiles in shared memory, and how a product is told where its operands lie.

/// A stage of a ring and the parity of its current use.
struct RingPlace {
  int stage, parity;
};

__device__ __forceinline__ void advance(RingPlace& place) {
  if (++place.stage == stages) {
    place.stage = 0;
    place.parity ^= 1;
  }
}

__device__ __forceinline__ void release(u32 empty_barrier) {
  if (thread_index() % 32 == 0) barrier_arrive(empty_barrier);
}

/// Low word of a swizzled operand's descriptor: address and leading offset (between panels of a transposed
/// one) in 16-byte units (9.7.15.5.1.2). The high word: 1024 bytes between groups of 8 rows, swizzle mode 1.
__device__ __forceinline__ u32 warpgroup_descriptor(u32 address, u32 leading_bytes) {
  return (address & 0x3ffff) / 16 | leading_bytes / 16 << 16;
}
