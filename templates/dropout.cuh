// Dropout in kernels: the words that decide about a thread's probabilities.

/// Of two fragments of 16 by 16: words[i][parity], by the parity of keys, or of rows where the fragments are
/// transposed. Each thread draws for one of the two, and for the thread four lanes further; they exchange
/// halves.
template <bool transposed>
__device__ __forceinline__ void draw_fragments(u32 (&words)[2][2], const DropoutParameters& p, int head,
                                               int first_row, int first_key, int second_row, int second_key) {
  // Anew every time: kept over a loop it would cost registers that the tiles need.
  const int lane = (int)opaque(thread_index()) % 32, across = lane % 4, down = lane / 8;
  const bool odd = lane & 4;
  u32 drawn[4];
  draw_words(drawn, p.keys, head, odd ? second_row : first_row, odd ? second_key : first_key,
             transposed ? across : down, transposed ? down : across);
  if (transposed) {
    const u32 middle = drawn[1];
    drawn[1] = drawn[2];
    drawn[2] = middle;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u32 received = shuffle_xor(odd ? drawn[i] : drawn[2 + i], 4);
    words[0][i] = odd ? received : drawn[i];
    words[1][i] = odd ? drawn[2 + i] : received;
  }
}
