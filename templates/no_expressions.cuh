// A spec without expressions.

struct Scope {};

struct ExpressionArguments {};

__device__ __forceinline__ Scope scope_of(const Sequence&, const ExpressionArguments&, int, int) {
  return {};
}

struct Positions {};  // in the matrix of scores

__device__ __forceinline__ Positions positions_of(const Sequence&, int, int) {
  return {};
}

__device__ __forceinline__ float changed_score(const Scope&, float product, float scale, const Positions&,
                                               int, int) {
  return capped_score(product, scale);
}
