#include "codegen/schedule.h"

#include <algorithm>

#include "codegen/error.h"

namespace tilewright {
namespace {

int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// templates/sm80/tile.cuh: columns padded to 16, two bytes each.
int row_bytes(int head_dim) { return round_up(head_dim, 16) * 2; }

std::string text(int value) { return std::to_string(value); }

// Registers beside output, scores and Q fragments: addresses, one set of operand fragments, softmax state. Read off
// compiler reports for sm_80 and sm_90a over the shipped specs.
constexpr int other_registers = 64;

}  // namespace

Resources resources(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  Resources result;
  if (schedule.family == Family::sm90) {
    const int panels_qk = (spec.head_dim.qk + 63) / 64, panels_v = (spec.head_dim.v + 63) / 64;
    result.shared_memory = 128 * (schedule.block_m * panels_qk + schedule.stages * schedule.block_n * (panels_qk + panels_v)) +
                           16 * schedule.consumers() + 32 * schedule.stages + 64;
    result.accumulator_registers = spec.head_dim.v / 2 + schedule.block_n / 2 + schedule.block_n / 4;
    result.blocks_per_sm = 1;
    return result;
  }
  const int qk = row_bytes(spec.head_dim.qk), v = row_bytes(spec.head_dim.v);
  result.shared_memory = schedule.block_m * qk + schedule.stages * schedule.block_n * (qk + v);
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

std::vector<std::string> illegal_because(const AttentionSpec& spec, const Schedule& schedule, const Target& target) {
  std::vector<std::string> reasons;
  const auto refuse = [&](std::string reason) { reasons.push_back(std::move(reason)); };
  const auto in_range = [&](const char* name, int value, int low, int high) {
    if (value >= low && value <= high) return true;
    refuse(std::string("blocks.") + name + " is " + text(value) + "; expected " + text(low) + " to " + text(high));
    return false;
  };
  if (schedule.family == Family::sm90) {
    if (!target.wgmma) refuse("the sm90 family needs wgmma, which only sm_90a has");
    const int shared = resources(spec, schedule, target).shared_memory;
    if (shared > target.shared_memory_per_block) refuse("shared " + text(shared));
    return reasons;
  }
  bool sizes = in_range("m", schedule.block_m, 16, 256);
  sizes = in_range("n", schedule.block_n, 16, 256) && sizes;
  sizes = in_range("warps", schedule.warps, 1, 16) && sizes;
  sizes = in_range("stages", schedule.stages, 1, 8) && sizes;
  if (!sizes) return reasons;
  if (schedule.block_n % 16 != 0) refuse("blocks.n is " + text(schedule.block_n) + "; expected a multiple of 16");
  if (schedule.block_m % (16 * schedule.warps) != 0) {
    refuse("blocks.m is " + text(schedule.block_m) + "; expected a multiple of 16 times warps, " +
           text(16 * schedule.warps));
    return reasons;
  }
  const Resources need = resources(spec, schedule, target);
  if (need.shared_memory > target.shared_memory_per_block)
    refuse("the tiles take " + text(need.shared_memory) + " bytes of shared memory and " + std::string(target.name) +
           " has " + text(target.shared_memory_per_block) + " for a block");
  // 255 registers a thread, of which about 40 are addresses and operands at the very least.
  if (need.accumulator_registers > 215)
    refuse("output, scores and Q fragments take " + text(need.accumulator_registers) +
           " registers a thread and 215 of the 255 can be had; give more warps or a smaller tile");
  return reasons;
}

std::vector<std::string> unsupported_because(const AttentionSpec& spec, const Target& target) {
  std::vector<std::string> reasons;
  const auto refuse = [&](std::string reason) { reasons.push_back(std::move(reason)); };
  const auto refuse_key = [&](bool used, const char* key) {
    if (used) refuse(std::string("`") + key + "` has no kernel yet");
  };
  if (target.major < 8) refuse(std::string(target.name) + " is older than compute capability 8.0");
  if (spec.pass != Pass::forward)
    refuse("`pass: " + std::string(name_of(spec.pass)) + "` has no kernel yet; forward has");
  if (spec.layout != Layout::bshd && spec.layout != Layout::bhsd)
    refuse("`layout: " + std::string(name_of(spec.layout)) + "` has no kernel yet; bshd and bhsd have");
  if (spec.dtype.q != spec.dtype.kv || spec.dtype.q != spec.dtype.out ||
      (spec.dtype.q != DataType::fp16 && spec.dtype.q != DataType::bf16))
    refuse("`dtype` {q: " + std::string(name_of(spec.dtype.q)) + ", kv: " + std::string(name_of(spec.dtype.kv)) +
           ", out: " + std::string(name_of(spec.dtype.out)) + "} has no kernel yet; fp16 and bf16 throughout have");
  if (spec.head_dim.qk > 256 || spec.head_dim.v > 256)
    refuse("head_dim {qk: " + text(spec.head_dim.qk) + ", v: " + text(spec.head_dim.v) +
           "} has no kernel yet; multiples of 8 up to 256 have");
  refuse_key(spec.alibi, "alibi");
  refuse_key(spec.bias, "bias");
  refuse_key(spec.sinks, "sinks");
  refuse_key(spec.dropout, "dropout");
  refuse_key(spec.rope != Rope::none, "rope");
  return reasons;
}

}  // namespace tilewright
