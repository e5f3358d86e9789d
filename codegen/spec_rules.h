// The rules every spec obeys, whether it was parsed or set by code.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/spec.h"

namespace tilewright {

/// Every key of the language: `name` first, the others in canonical order.
inline constexpr std::array<std::string_view, 22> spec_keys = {
    "name",    "pass",    "head_dim", "dtype",     "gqa_ratio", "mask",          "score",
    "scalars", "tensors", "layout",   "page_size", "blocks",    "softmax_scale", "softcap",
    "lse",     "alibi",   "bias",     "bias_gradient", "sinks", "dropout", "deterministic", "rope"};
inline constexpr std::array<std::string_view, 2> head_dim_keys = {"qk", "v"};
inline constexpr std::array<std::string_view, 3> dtype_keys = {"q", "kv", "out"};
inline constexpr std::array<std::string_view, 3> mask_keys = {"window", "blocks", "with"};
inline constexpr std::array<std::string_view, 2> mask_block_keys = {"m", "n"};
inline constexpr std::array<std::string_view, 10> block_keys = {
    "family", "m", "n", "stages", "warps", "query_in_registers", "ping_pong", "pack_group", "cluster", "order"};

/// A spec's element types; fp32 is for LSE alone.
inline constexpr std::array<DataType, 4> spec_data_types = {DataType::fp16, DataType::bf16, DataType::e4m3,
                                                            DataType::e5m2};

struct IntegerRule {
  std::string_view field;  // as it is written in YAML, with dots: "blocks.m"
  int64_t low, high, multiple;
};
inline constexpr IntegerRule head_dim_rule{"head_dim", 8, 576, 8};
inline constexpr IntegerRule head_dim_qk_rule{"head_dim.qk", 8, 576, 8};
inline constexpr IntegerRule head_dim_v_rule{"head_dim.v", 8, 576, 8};
inline constexpr IntegerRule gqa_ratio_rule{"gqa_ratio", 1, 1 << 20, 1};
inline constexpr IntegerRule page_size_rule{"page_size", 1, 1 << 20, 1};
inline constexpr IntegerRule block_m_rule{"blocks.m", 16, 512, 16};
inline constexpr IntegerRule block_n_rule{"blocks.n", 8, 512, 8};
inline constexpr IntegerRule block_stages_rule{"blocks.stages", 1, 16, 1};
inline constexpr IntegerRule block_warps_rule{"blocks.warps", 1, 32, 1};
inline constexpr IntegerRule block_pack_group_rule{"blocks.pack_group", 1, 64, 1};
inline constexpr IntegerRule block_cluster_rule{"blocks.cluster", 1, 2, 1};
inline constexpr IntegerRule mask_block_m_rule{"mask.blocks.m", 64, 4096, 64};
inline constexpr IntegerRule mask_block_n_rule{"mask.blocks.n", 16, 4096, 16};
inline constexpr IntegerRule window_rule{"mask.window", -(int64_t{1} << 31), int64_t{1} << 31, 1};

/// The limits keep every product of the two inside fp32 with room to spare.
struct NumberRule {
  std::string_view field;
  double low, high;
  bool zero;  // zero is valid too
};
inline constexpr NumberRule softmax_scale_rule{"softmax_scale", 1e-12, 1e12, false};
inline constexpr NumberRule softcap_rule{"softcap", 1e-6, 1e6, true};

/// A broken rule.
struct SpecProblem {
  std::string field;     // where it is in the YAML: "head_dim.qk"
  std::string fault;     // "head_dim: 100 is not valid"
  std::string expected;  // "a multiple of 8 from 8 to 576"
  std::string nearest;   // "96 and 104", or empty

  /// "head_dim: 100 is not valid; expected a multiple of 8 from 8 to 576; nearest: 96 and 104"
  std::string message() const;
};

/// "a multiple of 8 from 8 to 576"
std::string description(const IntegerRule& rule);
std::string description(const NumberRule& rule);

std::optional<SpecProblem> check(const IntegerRule& rule, int64_t value);
std::optional<SpecProblem> check(const NumberRule& rule, double value);

/// All broken rules, those that concern several keys included.
std::vector<SpecProblem> find_problems(const AttentionSpec& spec);

/// The shortest decimal that reads back as the same number, in any locale.
std::string shortest_decimal(double value);

/// "fp16, bf16, e4m3, e5m2"
template <typename Words>
std::string joined(const Words& words) {
  std::string text;
  for (std::string_view word : words) {
    if (!text.empty()) text += ", ";
    text += word;
  }
  return text;
}

}  // namespace tilewright
