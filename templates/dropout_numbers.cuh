// Which probabilities dropout keeps: Philox4x32-10 (Salmon et al., SC 2011) over places in the matrix of
// scores. The host includes this very file.

/// Ten rounds with the key of each.
__device__ __forceinline__ void philox(u32 (&counter)[4], const u32 (&keys)[20]) {
  for (int round = 0; round < 10; ++round) {
    const u64 first = (u64)counter[0] * 0xd2511f53u, second = (u64)counter[2] * 0xcd9e8d57u;
    counter[0] = (u32)(second >> 32) ^ counter[1] ^ keys[2 * round];
    counter[1] = (u32)second;
    counter[2] = (u32)(first >> 32) ^ counter[3] ^ keys[2 * round + 1];
    counter[3] = (u32)first;
  }
}

/// Four words for 16 places at once: of a fragment of 16 rows by 16 keys the rows 2 a, 2 a + 1, 2 a + 8, 2 a
/// + 9 by the keys 2 b, 2 b + 1, 2 b + 8, 2 b + 9. That is half of what each of two threads holds of the
/// fragment after a matrix product, be the product's rows queries (forward) or keys (the sm90 backward).
/// `row` and `key` are any of the fragment's, `head` counts the heads of all batches.
__device__ __forceinline__ void draw_words(u32 (&words)[4], const u32 (&keys)[20], int head, int row, int key,
                                           int a, int b) {
  words[0] = (u32)row / 16 * 4 + a;
  words[1] = (u32)key / 16 * 4 + b;
  words[2] = head;
  words[3] = 0;
  philox(words, keys);
}

/// Word 2 * (row % 2) + key % 2 decides about four places, one each 8 rows or keys: byte 2 * (row / 8 % 2) +
/// key / 8 % 2 from the top is the place's number, the bytes behind it, around the end, its fraction. So each
/// place is dropped with the rate to 32 bits, at a byte drawn for each; places of one word depend on each
/// other where a byte equals the rate's (a correlation below 1 / 256).
__device__ __forceinline__ bool is_dropped(u32 word, int byte, u32 threshold) {
  return (word << 8 * byte | word >> ((32 - 8 * byte) & 31)) < threshold;
}
