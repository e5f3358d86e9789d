// The canonical form: a spec's identity. Every member of AttentionSpec except the name must appear here.
#include <fmt/format.h>

#include "codegen/spec.h"
#include "codegen/spec_rules.h"

namespace tilewright {
namespace {

std::string head_dim_text(const HeadDim& head_dim) {
  if (head_dim.qk == head_dim.v) return fmt::format("{}", head_dim.qk);
  return fmt::format("{{qk: {}, v: {}}}", head_dim.qk, head_dim.v);
}

std::string dtype_text(const DataTypes& dtype) {
  if (dtype.q == dtype.kv && dtype.q == dtype.out) return std::string(name_of(dtype.q));
  return fmt::format("{{q: {}, kv: {}, out: {}}}", name_of(dtype.q), name_of(dtype.kv), name_of(dtype.out));
}

std::string side_text(int64_t side) {
  return side == Mask::unlimited ? "inf" : fmt::format("{}", side);
}

std::string mask_text(const Mask& mask);

std::string listed_mask_text(Mask mask) {
  const auto [m, n] = *mask.blocks;
  mask.blocks.reset();
  const std::string blocks = fmt::format("blocks: {{m: {}, n: {}}}", m, n);
  if (mask == Mask{}) return "{" + blocks + "}";
  return "{" + blocks + ", with: " + mask_text(mask) + "}";
}

std::string mask_text(const Mask& mask) {
  if (mask.blocks) return listed_mask_text(mask);
  switch (mask.kind) {
    case Mask::Kind::none:
      return "none";
    case Mask::Kind::causal:
      return "causal";
    case Mask::Kind::causal_top_left:
      return "causal_top_left";
    case Mask::Kind::expression:
      return '"' + to_text(*mask.expression) + '"';
    case Mask::Kind::window:
      return fmt::format("{{window: [{}, {}]}}", side_text(mask.left), side_text(mask.right));
  }
  return "";
}

std::string scalars_text(const Declarations& declarations) {
  std::string text;
  for (const auto& [name, type] : declarations.scalars)
    text += fmt::format("{}{}: {}", text.empty() ? "{" : ", ", name, name_of(type));
  return text + "}";
}

// In quotation marks: other readers of YAML see a list in the brackets.
std::string tensors_text(const Declarations& declarations) {
  std::string text;
  for (const auto& [name, type] : declarations.tensors)
    text += fmt::format("{}{}: \"{}\"", text.empty() ? "{" : ", ", name, to_text(type));
  return text + "}";
}

}  // namespace

std::string canonical_form(const BlockRequest& blocks) {
  std::string fields;
  auto add = [&](std::string_view key, const std::string& value) {
    if (!fields.empty()) fields += ", ";
    fields += fmt::format("{}: {}", key, value);
  };
  if (blocks.family) add("family", std::string(name_of(*blocks.family)));
  if (blocks.m) add("m", fmt::format("{}", *blocks.m));
  if (blocks.n) add("n", fmt::format("{}", *blocks.n));
  if (blocks.stages) add("stages", fmt::format("{}", *blocks.stages));
  if (blocks.warps) add("warps", fmt::format("{}", *blocks.warps));
  if (blocks.query_in_registers) add("query_in_registers", *blocks.query_in_registers ? "true" : "false");
  if (blocks.ping_pong) add("ping_pong", *blocks.ping_pong ? "true" : "false");
  if (blocks.pack_group) add("pack_group", fmt::format("{}", *blocks.pack_group));
  if (blocks.cluster) add("cluster", fmt::format("{}", *blocks.cluster));
  if (blocks.order) add("order", *blocks.order);
  return "{" + fields + "}";
}

std::string canonical_form(const AttentionSpec& spec) {
  const AttentionSpec defaults;
  std::string text;
  auto add = [&](bool differs, std::string_view key, const std::string& value) {
    if (differs) text += fmt::format("{}: {}\n", key, value);
  };
  auto add_flag = [&](bool value, std::string_view key) { add(value, key, "true"); };

  add(spec.pass != defaults.pass, "pass", std::string(name_of(spec.pass)));
  add(true, "head_dim", head_dim_text(spec.head_dim));  // has no default
  add(spec.dtype != defaults.dtype, "dtype", dtype_text(spec.dtype));
  add(spec.gqa_ratio != defaults.gqa_ratio, "gqa_ratio", fmt::format("{}", spec.gqa_ratio));
  add(spec.mask != defaults.mask, "mask", mask_text(spec.mask));
  if (spec.score) add(true, "score", '"' + to_text(*spec.score) + '"');
  add(!spec.declarations.scalars.empty(), "scalars", scalars_text(spec.declarations));
  add(!spec.declarations.tensors.empty(), "tensors", tensors_text(spec.declarations));
  add(spec.layout != defaults.layout, "layout", std::string(name_of(spec.layout)));
  add(spec.page_size != defaults.page_size, "page_size", fmt::format("{}", spec.page_size));
  add(spec.blocks != defaults.blocks, "blocks", canonical_form(spec.blocks));
  if (spec.softmax_scale) add(true, "softmax_scale", shortest_decimal(*spec.softmax_scale));
  add(spec.softmax_scale_at_launch, "softmax_scale", "launch");
  add(spec.softcap != defaults.softcap, "softcap", shortest_decimal(spec.softcap));
  add_flag(spec.lse, "lse");
  add_flag(spec.alibi, "alibi");
  add_flag(spec.bias, "bias");
  add_flag(spec.bias_gradient, "bias_gradient");
  add_flag(spec.sinks, "sinks");
  add_flag(spec.dropout, "dropout");
  add_flag(spec.deterministic, "deterministic");
  add(spec.rope != defaults.rope, "rope", std::string(name_of(spec.rope)));
  return text;
}

}  // namespace tilewright
