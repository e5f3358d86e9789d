#include "codegen/shape_bucket.h"

#include <string>
#include <vector>

#include "codegen/error.h"
#include "codegen/nearest.h"

namespace tilewright {
namespace {

// 128 tiles: an H200 has 132 multiprocessors, an A100 108. 2048 queries: below, tiles of 192 rows instead of
// 128 lose up to 12 % to the rows beyond the last query.
// 64 queries: below, a tile of 64 rows that holds the heads of a group is up to 4.6 times as fast on an H200.
constexpr ShapeBucket buckets[] = {
    {"rows", "at most 64 queries: few rows of each head", INT64_MAX, 64},
    {"few", "at most 128 tiles of 128 query rows over all heads and batches: less than a GPU holds", 128,
     INT64_MAX},
    {"short", "at most 2048 queries", INT64_MAX, 2048},
    {"long", "everything else", INT64_MAX, INT64_MAX},
};

}  // namespace

bool ShapeBucket::contains(const LaunchShape& shape) const {
  // In floating point: the product of three lengths can pass 2^63.
  const double tiles = static_cast<double>(shape.batch) * static_cast<double>(shape.heads) *
                       static_cast<double>(shape.seqlen_q / 128 + (shape.seqlen_q % 128 != 0));
  return tiles <= static_cast<double>(most_tiles) && shape.seqlen_q <= most_queries;
}

std::span<const ShapeBucket> shape_buckets() {
  return buckets;
}

const ShapeBucket& bucket_of(const LaunchShape& shape) {
  for (const ShapeBucket& bucket : buckets)
    if (bucket.contains(shape)) return bucket;
  return long_bucket();
}

size_t index_of(const ShapeBucket& bucket) {
  return static_cast<size_t>(&bucket - buckets);
}

const ShapeBucket& long_bucket() {
  return buckets[std::size(buckets) - 1];
}

const ShapeBucket& bucket_by_name(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ShapeBucket& bucket : buckets) {
    if (bucket.name == name) return bucket;
    names.push_back(bucket.name);
  }
  std::string message = "unknown shape bucket \"" + std::string(name) + "\"; expected one of";
  for (std::string_view known : names) message += " " + std::string(known);
  const std::string_view near = nearest(name, names);
  throw Error(ErrorKind::usage, message + (near.empty() ? "" : "; nearest: " + std::string(near)));
}

LaunchShape mean_sequence(LaunchShape shape) {
  if (shape.batch < 1) return {};
  for (int64_t* rows : {&shape.seqlen_q, &shape.seqlen_kv}) *rows = (*rows + shape.batch - 1) / shape.batch;
  return shape;
}

}  // namespace tilewright
