#include "codegen/timing_shape.h"

#include <algorithm>

namespace tilewright {

LaunchShape timing_shape(const AttentionSpec& spec, const ShapeBucket& bucket) {
  constexpr int64_t tokens = 16384, least_heads = 16, longest = 8192, shortest = 128;
  LaunchShape shape;
  shape.heads = (least_heads + spec.gqa_ratio - 1) / spec.gqa_ratio * spec.gqa_ratio;
  if (bucket.most_queries < shortest) {
    // Few queries come to sequences that are there already.
    shape.batch = 8;
    shape.seqlen_q = bucket.most_queries / 4;
    shape.seqlen_kv = longest;
    return shape;
  }
  const int64_t first = std::min(longest, std::max(shortest, bucket.most_queries / 2));
  // Down to the first that the bucket, and no bucket before it, lets through.
  for (int64_t seqlen = first; seqlen >= shortest; seqlen /= 2)
    for (int64_t batch : {std::max<int64_t>(1, tokens / seqlen), int64_t{1}}) {
      shape.batch = batch;
      shape.seqlen_q = shape.seqlen_kv = seqlen;
      if (bucket_of(shape).name == bucket.name) return shape;
    }
  return {1, spec.gqa_ratio, shortest / 2, shortest / 2};
}

}  // namespace tilewright
