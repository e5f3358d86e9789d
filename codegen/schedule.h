// A schedule: HOW a spec is computed.
#pragma once

#include <string>
#include <vector>

#include "codegen/shape_bucket.h"
#include "codegen/spec.h"
#include "codegen/target.h"

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

struct Schedule {
  Family family = Family::sm80;
  int block_m = 0;  // query rows of a tile
  int block_n = 0;  // keys of a tile
  int warps =
      0;  // sm80: each owns block_m / warps rows; sm90: 4 a consumer of 64 rows, and 4 of the producer
  int stages = 0;                   // pairs of K and V tiles in shared memory at once; 1: K and V take turns
  bool query_in_registers = false;  // sm80: Q fragments are read once instead of once per K tile
  bool ping_pong = false;  // sm90: consumers take turns, products of one under the softmax of the other
  int pack_group = 1;      // sm90: query heads of one KV head that share a tile of rows
  int cluster = 1;         // sm90: blocks that share their tiles of keys, each with its own tile of rows
  int order = -1;          // sm90, backward: of a block's products, a number of backward_orders(); -1: none
  bool operator==(const Schedule&) const = default;

  int threads() const { return 32 * warps; }
  int positions() const { return block_m / pack_group; }  // of a tile: the query rows of one head
  int consumers() const { return block_m / 64; }          // sm90
};

/// The name of its order; "" for none.
std::string_view order_name(const Schedule& schedule);

/// What one block of a schedule takes, by calculation (the compiler's own figures are in CompileReport).
struct Resources {
  int shared_memory = 0;          // bytes
  int accumulator_registers = 0;  // per thread: output, scores and Q fragments that must live at once
  int blocks_per_sm = 0;
};
Resources resources(const AttentionSpec& spec, const Schedule& schedule, const Target& target);

/// Bytes of device memory that a launch of this shape takes for itself: for the forward pass those of the
/// tables of its mask's look-ups, 0 without; linear in the lengths for the backward pass (layout packed: of
/// the number of sequences and the rows of all of them together, `shape`'s batch and lengths). Pure
/// arithmetic in 64 bits, the same with and without a GPU. Throws Error(usage) for lengths that cannot be
/// launched.
int64_t workspace_size(const AttentionSpec& spec, const Schedule& schedule, const LaunchShape& shape);

/// Why a schedule cannot run; empty: legal. Each reason names numbers (bytes needed, bytes available).
std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule,
                                         const Target& target);

/// Why no kernel serves the spec on the target; empty: supported.
std::vector<std::string> unsupported_because(const AttentionSpec& spec, const Target& target);

/// The schedule the spec asks for, else the default rule's for launches of the bucket. Throws Error(spec)
/// with the reasons, and the nearest schedule that fits, if the spec's own blocks are illegal or the spec is
/// unsupported.
Schedule choose_schedule(const AttentionSpec& spec, const Target& target,
                         const ShapeBucket& bucket = long_bucket());

/// The schedules of one spec: one for each bucket, in the order of shape_buckets(). Few differ, so that few
/// kernels are compiled.
struct BucketSchedules {
  std::vector<Schedule> by_bucket;

  const Schedule& at(const LaunchShape& shape) const;
  /// Without repetition, in the order of the buckets: the variants of a kernel.
  std::vector<Schedule> distinct() const;
};

/// What choose_schedule says for every bucket. A spec with `blocks` of its own has one schedule for all.
BucketSchedules bucket_schedules(const AttentionSpec& spec, const Target& target);

/// The schedule that a launch of this shape runs with.
Schedule schedule_for(const AttentionSpec& spec, const Target& target, const LaunchShape& shape);

/// `blocks` that ask for exactly this schedule, and back: `blocks` that leave nothing open. Throws
/// Error(spec) if they do.
BlockRequest request_for(const Schedule& schedule);
Schedule schedule_of(const BlockRequest& blocks);

/// One sentence: why the default rule chose this.
std::string schedule_reason(const AttentionSpec& spec, const Schedule& schedule, const Target& target);

/// "m 128, n 64, warps 4, stages 2, query in registers"
std::string describe(const Schedule& schedule);

}  // namespace tilewright
#pragma GCC visibility pop
