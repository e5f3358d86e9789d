#include <algorithm>

#include "codegen/families.h"
#include "codegen/kernel_expressions.h"

namespace tilewright::sm90 {
namespace {

std::string text(int value) {
  return std::to_string(value);
}

int panels(int head_dim) {
  return (head_dim + 63) / 64;
}

// Registers of a consumer beside output, scores and probabilities: addresses, softmax state, tile and ring
// places. With it the largest tiles tried (64 columns by 128 keys in 160 registers, 128 by 176 and 256 by 80
// in 232) do not spill.
constexpr int other_registers = 32;

// What a mask that is evaluated for each element takes beside, or a score that looks something up for each.
// Other scores, such as ALiBi, and the ends of the range of keys that a row sees fit in the above.
constexpr int expression_registers = 24;

bool looks_up_elements(const Expression& expression) {
  const auto& operands = expression.operands();
  if (expression.operation() == Operation::look_up &&
      (expression.uses(ExpressionVariable::q) || expression.uses(ExpressionVariable::kv)))
    return true;
  return std::any_of(operands.begin(), operands.end(), looks_up_elements);
}

bool evaluates_elements(const AttentionSpec& spec) {
  const KernelExpressions expressions = kernel_expressions(spec);
  return (expressions.score && looks_up_elements(*expressions.score)) ||
         (expressions.mask && !expressions.has_limits);
}

// The blocks of a cluster must visit the same tiles of keys, and each brings half of the panels of one.
void refuse_cluster(Refusals& refusals, const AttentionSpec& spec, const Schedule& schedule) {
  if (schedule.cluster == 1) return;
  if (spec.mask.kind != Mask::Kind::none || spec.mask.blocks)
    refusals.add(
        "blocks.cluster needs `mask: none`: under a mask the blocks of a cluster visit different keys");
  if (spec.layout == Layout::packed)
    refusals.add("blocks.cluster needs a layout other than packed, in which sequences have the same lengths");
  if (schedule.threads() * schedule.cluster > 1024)  // as many as the simulator runs together
    refusals.add("blocks.cluster needs blocks.m 192 or less");
  if (std::min(panels(spec.head_dim.qk), panels(spec.head_dim.v)) < schedule.cluster)
    refusals.add("blocks.cluster is " + text(schedule.cluster) + ", which needs " +
                 text(64 * (schedule.cluster - 1) + 8) + " columns or more of K and of V to share out by 64");
}

// As templates/sm90/layout.cuh lays it out.
int shared_memory(const AttentionSpec& spec, const Schedule& schedule, int query_slots) {
  const int qk = panels(spec.head_dim.qk), v = panels(spec.head_dim.v);
  const int last_values = spec.layout == Layout::packed ? 16 : 0;  // templates/sm90/last_values.cuh
  const int barriers = query_slots * (16 * schedule.consumers() + 80) + 32 * schedule.stages + last_values;
  return 128 * (query_slots * schedule.block_m * qk + schedule.stages * schedule.block_n * (qk + v)) +
         barriers;
}

// Fewer heads would only load K and V more often.
int largest_pack_group(const AttentionSpec& spec) {
  return std::min(spec.gqa_ratio & -spec.gqa_ratio, 64);
}

// A box of the copy engine holds all heads of a group at whole positions. Whatever tells heads apart before
// the output would have to do so row by row.
bool keeps_heads_apart(const AttentionSpec& spec) {
  return kernel_expressions(spec).any() || spec.mask.blocks || spec.dropout;
}

bool may_pack_group(const AttentionSpec& spec) {
  return largest_pack_group(spec) > 1 && !keeps_heads_apart(spec) && spec.layout != Layout::packed;
}

void refuse_pack_group(Refusals& refusals, const AttentionSpec& spec, const Schedule& schedule) {
  const int group = schedule.pack_group;
  if (group == 1) return;
  if (const int most = largest_pack_group(spec); group != most)
    refusals.add("blocks.pack_group is " + text(group) + "; expected 1" +
                 (most > 1 ? " or " + text(most) : "") +
                 ", the largest power of two up to 64 that divides gqa_ratio, " + text(spec.gqa_ratio));
  if (keeps_heads_apart(spec))
    refusals.add(
        "blocks.pack_group has no kernel with expressions, `alibi`, `bias`, `dropout` or `mask.blocks`");
  if (spec.layout == Layout::packed) refusals.add("blocks.pack_group has no kernel with `layout: packed`");
  if (schedule.cluster > 1) refusals.add("blocks.pack_group and blocks.cluster exclude each other");
}

// The largest tile of keys, in steps of 16 up to `most`, that fits beside the rest.
int largest_block_n(const AttentionSpec& spec, Schedule schedule, const Target& target, int most) {
  for (schedule.block_n = most; schedule.block_n > 16; schedule.block_n -= 16)
    if (sm90::illegal_because(spec, schedule, target).empty()) break;
  return schedule.block_n;
}

}  // namespace

// 65536 registers: a block of 2 to 5 warpgroups is launched with 255, 168, 128 or 96 a thread, and the
// producer gives up what it can do without (below these figures it spills).
int consumer_registers(int consumers) {
  constexpr int registers[] = {240, 232, 160, 112};
  return registers[consumers - 1];
}
int producer_registers(int consumers) {
  return consumers >= 3 ? 32 : 40;
}

int query_slots(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  return shared_memory(spec, schedule, 2) <= target.shared_memory_per_block ? 2 : 1;
}

Resources resources(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  Resources result;
  result.shared_memory = shared_memory(spec, schedule, query_slots(spec, schedule, target));
  result.accumulator_registers = spec.head_dim.v / 2 + schedule.block_n / 2 + schedule.block_n / 4;
  result.blocks_per_sm = 1;
  return result;
}

std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule,
                                         const Target& target) {
  Refusals refusals;
  if (!target.wgmma) refusals.add("the sm90 family needs wgmma, which sm_90a alone has");
  bool sizes = refusals.in_range("m", schedule.block_m, 64, 256);
  sizes = refusals.in_range("n", schedule.block_n, 16, 256) && sizes;
  sizes = refusals.in_range("stages", schedule.stages, 1, 8) && sizes;
  sizes = refusals.in_range("cluster", schedule.cluster, 1, 2) && sizes;
  if (schedule.order >= 0) refusals.add("blocks.order is an axis of the backward pass alone");
  if (schedule.query_in_registers)
    refusals.add("blocks.query_in_registers is an axis of the sm80 family alone");
  if (!sizes) return refusals.take();
  if (schedule.block_n % 16 != 0)
    refusals.add("blocks.n is " + text(schedule.block_n) + "; expected a multiple of 16");
  if (schedule.block_m % 64 != 0)
    refusals.add("blocks.m is " + text(schedule.block_m) + "; expected 64, 128, 192 or 256");
  const int consumers = schedule.consumers();
  if (schedule.warps != 4 * (consumers + 1))
    refusals.add("blocks.warps is " + text(schedule.warps) + "; expected " + text(4 * (consumers + 1)) +
                 ", 4 for each 64 rows and 4 for the producer");
  if (schedule.ping_pong && consumers < 2)
    refusals.add("blocks.ping_pong needs two consumers, blocks.m 128 or more");
  refuse_unlike_list(refusals, spec, schedule);
  refuse_cluster(refusals, spec, schedule);
  refuse_pack_group(refusals, spec, schedule);
  const Resources need = sm90::resources(spec, schedule, target);
  if (need.shared_memory > target.shared_memory_per_block)
    refusals.add("the tiles take " + text(need.shared_memory) + " bytes of shared memory and " +
                 std::string(target.name) + " has " + text(target.shared_memory_per_block) + " for a block");
  const int room =
      consumer_registers(consumers) - other_registers - (evaluates_elements(spec) ? expression_registers : 0);
  if (need.accumulator_registers > room)
    refusals.add("output, scores and probabilities take " + text(need.accumulator_registers) +
                 " registers a thread and " + text(room) + " of a consumer's " +
                 text(consumer_registers(consumers)) + " can be had; give a smaller blocks.n");
  return refusals.take();
}

// Measured on an H200 over head dims 64 to 256, lengths 1k to 16k (bench/results): three consumers where the
// output is small (at head dim 64 two run at 0.87 of them, at 80 and 96 at 0.92), two beyond. Three make
// tiles of 192 rows, which end badly where lengths are short: under a causal mask at 1k queries two are 12 %
// faster, at 16k 15 % slower. Fewer tiles than multiprocessors are better cut in half, one consumer each,
// from head dim 96 on: by 5 to 12 %, at 256 by 20 %; at 80 they are not.
constexpr int widest_for_three = 96, widest_for_two_of_few = 80;

// Through a narrow window, or under a mask of short sequences, a tile of query rows visits few tiles of keys,
// and its beginning and end weigh as much as these: four consumers hide each other's, small tiles of keys
// waste less beyond the mask, and many stages let each consumer go its own way. At head dim 64 a window of
// 128 keys is 1.77 times as fast as with the tiles for wide masks, and causal 1k and 2k are 1.17 and 1.19
// times.
constexpr Schedule narrow_tiles{Family::sm90, 256, 64, 20, 5}, short_tiles{Family::sm90, 256, 64, 20, 3};

// Their registers hold nothing beside: dropout and the places of packed sequences spill.
bool fits_four(const AttentionSpec& spec) {
  return std::max(spec.head_dim.qk, spec.head_dim.v) <= 64 && !spec.dropout && spec.layout != Layout::packed;
}

// Where rows see a range of keys that only a launch knows, such as their documents, tiles of 192 rows reach
// over too many ranges, unless they go with 128 keys; and a mask's function beside look-ups does not fit
// three consumers' registers.
bool wants_two(const AttentionSpec& spec) {
  const KernelExpressions expressions = kernel_expressions(spec);
  if (expressions.mask && !expressions.has_limits) return true;
  return expressions.sees_part && std::max(spec.head_dim.qk, spec.head_dim.v) > 64;
}

int preferred_consumers(const AttentionSpec& spec, const ShapeBucket& bucket) {
  const int widest = std::max(spec.head_dim.qk, spec.head_dim.v);
  const bool few = bucket.name == "few" || bucket.name == "rows";
  if (few) return widest <= widest_for_two_of_few || spec.layout == Layout::packed ? 2 : 1;
  const bool is_short = spec.mask.kind != Mask::Kind::none && bucket.name != long_bucket().name;
  // Beside the few registers of three or four consumers dropout spills.
  const bool crowded = wants_two(spec) || spec.dropout;
  return widest <= widest_for_three && !is_short && !crowded ? 3 : 2;
}

// Every query sees every key.
bool is_dense(const AttentionSpec& spec) {
  return spec.mask.kind == Mask::Kind::none && !spec.mask.blocks && !kernel_expressions(spec).any() &&
         spec.layout != Layout::packed && !spec.dropout;
}

std::vector<Schedule> preferred(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket) {
  if (tiny_blocks(spec, target, bucket)) return {};
  // With few queries the heads of a group fill a tile together, and its keys are loaded once for all: of 64
  // heads with 8 KV heads, 8k keys and batch 8, 1 to 16 queries take 78 to 92 us instead of 359.
  if (bucket.name == "rows" && may_pack_group(spec)) {
    Schedule schedule{.family = Family::sm90, .block_m = 64, .warps = 8, .stages = 2};
    schedule.pack_group = largest_pack_group(spec);
    schedule.block_n = largest_block_n(spec, schedule, target, 128);
    return {schedule};
  }
  const int widest = std::max(spec.head_dim.qk, spec.head_dim.v);
  int consumers = preferred_consumers(spec, bucket);
  if (spec.mask.blocks)  // a tile lies within one block
    while (spec.mask.blocks->m % (64 * consumers) != 0) --consumers;
  const int most_keys = consumers == 3 && widest > 64 ? 96 : consumers == 1 && widest > 192 ? 64 : 128;
  Schedule schedule{Family::sm90, 64 * consumers, 0, 4 * (consumers + 1), 2, false, consumers > 1};
  schedule.block_n = largest_block_n(spec, schedule, target_by_name("sm_90a"), most_keys);
  const bool few = bucket.name == "few" || bucket.name == "rows";
  // Unmasked and long: with 160 keys and without turns head dim 128 runs 2.7 % faster at 4k and 3.4 % at 16k;
  // under a causal mask, and at 1k, 2 to 12 % slower.
  if (bucket.name == "long" && consumers == 2 && widest > widest_for_three && is_dense(spec)) {
    Schedule long_tiles = schedule;
    long_tiles.ping_pong = false;
    long_tiles.block_n = largest_block_n(spec, long_tiles, target_by_name("sm_90a"), 160);
    if (long_tiles.block_n == 160) return {long_tiles, schedule};
  }
  // Tiles that see few keys wait for the first of them: a third stage holds those of the next tile of rows.
  // With documents of 128 to 4k keys 4 to 6 % at head dim 64, 2 to 3 % at 128, where it takes the place of a
  // second buffer of Q: at 1k that costs 5 %.
  if (kernel_expressions(spec).sees_part) {
    Schedule deep = schedule;
    deep.stages = 3;
    const bool costs_a_query = query_slots(spec, deep, target) < query_slots(spec, schedule, target);
    if (sm90::illegal_because(spec, deep, target).empty() && (bucket.name == "long" || !costs_a_query))
      return {deep, schedule};
  }
  if (few || !fits_four(spec)) return {schedule};
  if (has_narrow_window(spec)) return {narrow_tiles, schedule};
  if (spec.mask.kind != Mask::Kind::none && bucket.name == "short") return {short_tiles, schedule};
  return {schedule};
}

std::string reason(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  if (schedule.pack_group > 1)
    return "64 rows of " + text(schedule.pack_group) +
           " heads, since few queries fill a tile only together and so share the loads of its keys";
  if (schedule.consumers() == 4)
    return "4 consumers of 64 rows, which hide each other's beginnings and ends, and 64 keys: a "
           "tile of rows sees few";
  const bool could_be_three = std::max(spec.head_dim.qk, spec.head_dim.v) <= widest_for_three;
  std::string rows = "the most whose output of " + text(spec.head_dim.v) + " columns fits their registers";
  if (schedule.consumers() == 1)
    rows = "since there are fewer tiles of more rows than multiprocessors";
  else if (schedule.consumers() == 2 && could_be_three)
    rows = wants_two(spec) ? "since the mask says of each row what it sees"
                           : "since tiles of 192 rows reach further beyond the end of few queries";
  const int widest = std::max(spec.head_dim.qk, spec.head_dim.v);
  const bool alone = schedule.consumers() == 2 && !schedule.ping_pong;  // long and unmasked
  const std::string most_keys = alone                                       ? "160"
                                : schedule.consumers() == 3 && widest > 64  ? "96"
                                : schedule.consumers() == 1 && widest > 192 ? "64"
                                                                            : "128";
  return text(schedule.consumers()) + (schedule.consumers() == 1 ? " consumer" : " consumers") +
         " of 64 rows, " + rows + ", and the most keys up to " + most_keys + " that fit " +
         text(target.shared_memory_per_block) + " bytes of shared memory " +
         (schedule.stages == 3 ? "three times" : "twice");
}

}  // namespace tilewright::sm90
