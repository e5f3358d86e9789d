// Data movement within a quad of lanes.

/// Word i of lane q of a quad becomes word q of lane i.
__device__ __forceinline__ void transpose_quad(u32 (&word)[4]) {
  const bool odd = thread_index() & 1, upper = thread_index() & 2;
  const u32 x = shuffle_xor(odd ? word[0] : word[1], 1);
  const u32 y = shuffle_xor(odd ? word[2] : word[3], 1);
  const u32 a = odd ? x : word[0], b = odd ? word[1] : x, c = odd ? y : word[2], d = odd ? word[3] : y;
  const u32 z = shuffle_xor(upper ? a : c, 2);
  const u32 w = shuffle_xor(upper ? b : d, 2);
  word[0] = upper ? z : a;
  word[1] = upper ? w : b;
  word[2] = upper ? c : z;
  word[3] = upper ? d : w;
}
