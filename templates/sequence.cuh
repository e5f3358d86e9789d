// The sequence of queries and keys that a tile belongs to.

struct Sequence {
  int queries, keys;
};
