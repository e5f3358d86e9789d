#include <algorithm>

#include "codegen/families.h"
#include "codegen/kernel_expressions.h"

namespace tilewright::sm80 {
namespace {

int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// templates/sm80/tile.cuh: columns padded to 16, two bytes each.
int row_bytes(int head_dim) {
  return round_up(head_dim, 16) * 2;
}

std::string text(int value) {
  return std::to_string(value);
}

// Registers beside output, scores and Q fragments: addresses, one set of operand fragments, softmax state.
// Read off compiler reports for sm_80 and sm_90a over the shipped specs.
constexpr int other_registers = 64;

}  // namespace

Resources resources(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  Resources result;
  const int qk = row_bytes(spec.head_dim.qk), v = row_bytes(spec.head_dim.v);
  result.shared_memory = schedule.block_m * qk + schedule.stages * schedule.block_n * (qk + v);
  if (spec.layout == Layout::packed) result.shared_memory += 32;  // templates/sm80/place_packed.cuh
  const int fragments = schedule.block_m / schedule.warps / 16;
  const int output = fragments * round_up(spec.head_dim.v, 16) / 8 * 4;
  const int scores = fragments * schedule.block_n / 8 * 4;
  const int query = schedule.query_in_registers ? fragments * round_up(spec.head_dim.qk, 16) / 16 * 4 : 0;
  result.accumulator_registers = output + scores + query;
  const int registers = std::min(255, round_up(result.accumulator_registers + other_registers, 8));
  const int by_registers = target.registers_per_sm / (registers * schedule.threads());
  const int by_memory = target.shared_memory_per_sm / (result.shared_memory + 1024);
  const int by_warps = target.max_warps_per_sm / schedule.warps;
  result.blocks_per_sm = std::max(1, std::min({by_registers, by_memory, by_warps, target.max_blocks_per_sm}));
  return result;
}

std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule,
                                         const Target& target) {
  Refusals refusals;
  bool sizes = refusals.in_range("m", schedule.block_m, 16, 256);
  sizes = refusals.in_range("n", schedule.block_n, 16, 256) && sizes;
  sizes = refusals.in_range("warps", schedule.warps, 1, 16) && sizes;
  sizes = refusals.in_range("stages", schedule.stages, 1, 8) && sizes;
  if (schedule.order >= 0) refusals.add("blocks.order is an axis of the sm90 family's backward pass alone");
  if (schedule.ping_pong) refusals.add("blocks.ping_pong is an axis of the sm90 family alone");
  if (schedule.pack_group != 1)
    refusals.add("blocks.pack_group is an axis of the sm90 family's forward pass alone");
  if (schedule.cluster != 1)
    refusals.add("blocks.cluster is an axis of the sm90 family's forward pass alone");
  if (!sizes) return refusals.take();
  if (schedule.block_n % 16 != 0)
    refusals.add("blocks.n is " + text(schedule.block_n) + "; expected a multiple of 16");
  if (schedule.block_m % (16 * schedule.warps) != 0) {
    refusals.add("blocks.m is " + text(schedule.block_m) + "; expected a multiple of 16 times warps, " +
                 text(16 * schedule.warps));
    return refusals.take();
  }
  refuse_unlike_list(refusals, spec, schedule);
  const Resources need = sm80::resources(spec, schedule, target);
  if (need.shared_memory > target.shared_memory_per_block)
    refusals.add("the tiles take " + text(need.shared_memory) + " bytes of shared memory and " +
                 std::string(target.name) + " has " + text(target.shared_memory_per_block) + " for a block");
  // 255 registers a thread, of which about 40 are addresses and operands at the very least.
  if (need.accumulator_registers > 215)
    refusals.add("output, scores and Q fragments take " + text(need.accumulator_registers) +
                 " registers a thread and 215 of the 255 can be had; give more warps or a smaller tile");
  return refusals.take();
}

// Measured on an H200 against FlashAttention-2 over head dims 64, 128, 256, lengths 1k to 16k
// (bench/results): 32 rows a warp halve the shared-memory traffic of 16 and fit the registers up to 128
// output columns; beyond, two small blocks per SM overlap better than one large one.
std::vector<Schedule> preferred(const AttentionSpec& spec, const Target& target, const ShapeBucket& bucket) {
  const auto schedule = [](int m, int n, int warps, int stages, bool query_in_registers = false) {
    return Schedule{Family::sm80, m, n, warps, stages, query_in_registers};
  };
  std::vector<Schedule> list;
  if (tiny_blocks(spec, target, bucket)) list.push_back(schedule(32, 32, 2, 4, true));
  // Positions, scalars and addresses of tensors, or dropout's numbers, take registers too: what is fastest
  // without them spills.
  const bool expressions = kernel_expressions(spec).any() || spec.dropout;
  if (std::max(spec.head_dim.qk, spec.head_dim.v) <= 64)
    list.push_back(schedule(128, 64, 4, 2, !expressions));
  if (expressions && spec.head_dim.v > 64) list.push_back(schedule(128, 32, 4, 1));
  // Beside 64 keys ptxas spills up to 56 bytes for 104 to 120 columns, and for Blackwell targets at 128 too.
  if (spec.head_dim.v > 96 && spec.head_dim.v <= 128 && (spec.head_dim.v < 128 || target.major >= 10))
    list.push_back(schedule(128, 32, 4, 1));
  if (spec.head_dim.v <= 128) list.push_back(schedule(128, 64, 4, 1));
  list.push_back(schedule(64, 64, 4, 1));
  list.push_back(schedule(64, 32, 4, 1));
  list.push_back(schedule(64, 16, 4, 1));
  return list;
}

std::string reason(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  if (schedule.block_m == 32 && target.wgmma)
    return "few tiles through a narrow window, for which the sm90 family's blocks take longer to begin and "
           "to end; " +
           text(sm80::resources(spec, schedule, target).blocks_per_sm) + " blocks per SM";
  return text(schedule.block_m / schedule.warps) + " rows a warp, the most whose output of " +
         text(spec.head_dim.v) +
         " columns fits the registers, and the first tiles of the family's list that fit " +
         text(target.shared_memory_per_block) + " bytes of shared memory; " +
         text(sm80::resources(spec, schedule, target).blocks_per_sm) + " blocks per SM";
}

}  // namespace tilewright::sm80
