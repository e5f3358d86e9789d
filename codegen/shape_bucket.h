// Classes of launches. A kernel may have another schedule for each, and a tuning record names the one that it
// is for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

struct LaunchShape {
  int64_t batch = 0;
  int64_t heads = 0;  // query heads
  int64_t seqlen_q = 0;
  int64_t seqlen_kv = 0;
};

/// Of a packed launch, whose lengths are those of all sequences together: with their mean lengths, by which
/// it belongs to a bucket.
LaunchShape mean_sequence(LaunchShape shape);

/// A launch belongs to the first bucket whose limits it keeps; the last bucket has none.
struct ShapeBucket {
  std::string_view name;     // "rows", "few", "short", "long": what tuning records write
  std::string_view meaning;  // for people
  int64_t most_tiles;        // batch * heads * tiles of 128 query rows
  int64_t most_queries;      // seqlen_q

  bool contains(const LaunchShape& shape) const;
};

/// In the order in which they are asked.
std::span<const ShapeBucket> shape_buckets();

const ShapeBucket& bucket_of(const LaunchShape& shape);

/// Its place in shape_buckets().
size_t index_of(const ShapeBucket& bucket);

/// The last one: what a kernel is made for where lengths are not known.
const ShapeBucket& long_bucket();

/// By exact name. Throws Error(usage) that lists the names.
const ShapeBucket& bucket_by_name(std::string_view name);

}  // namespace tilewright
#pragma GCC visibility pop
