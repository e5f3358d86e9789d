#include "tests/support/attention_grid.h"

#include <cmath>

namespace tilewright::test {
namespace {

// Masks take turns over the head dims, so that every pair of neighbours in the grid differs in both.
const std::vector<std::string> masks = {"none",
                                        "causal",
                                        "causal_top_left",
                                        "{window: [20, 0]}",
                                        "{window: [33, 7]}",
                                        "{window: [inf, 5]}",
                                        "{window: [40, -8]}"};

GridGroup head_dims() {
  GridGroup group{"HeadDims", {}};
  int i = 0;
  for (int dim : {8, 16, 24, 32, 40, 64, 72, 80, 88, 96, 104, 112, 128, 136, 160, 192, 256}) {
    const std::string dtype = i % 2 ? "fp16" : "bf16";
    group.cases.push_back({.spec = "{head_dim: " + std::to_string(dim) + ", dtype: " + dtype +
                                   ", lse: true, mask: " + masks[i % masks.size()] + "}",
                           .seqlen_q = 65,
                           .seqlen_kv = 129});
    ++i;
  }
  for (const char* dims : {"{qk: 192, v: 128}", "{qk: 40, v: 72}", "{qk: 128, v: 24}", "{qk: 64, v: 256}"})
    group.cases.push_back({.spec = std::string("{lse: true, mask: causal, head_dim: ") + dims + "}",
                           .seqlen_q = 70,
                           .seqlen_kv = 70});
  return group;
}

GridGroup lengths() {
  GridGroup group{"Lengths", {}};
  for (const std::string& mask : masks)
    for (auto [q, kv] : std::vector<std::pair<int, int>>{
             {0, 5}, {5, 0}, {1, 1}, {63, 64}, {64, 63}, {65, 127}, {129, 65}, {200, 17}})
      group.cases.push_back({.spec = "{head_dim: 64, lse: true, mask: " + mask + "}",
                             .batch = 2,
                             .seqlen_q = q,
                             .seqlen_kv = kv});
  return group;
}

GridGroup ratios() {
  GridGroup group{"Ratios", {}};
  for (int ratio : {1, 2, 5, 6, 7, 12, 71})
    group.cases.push_back(
        {.spec = "{head_dim: 32, lse: true, mask: causal, gqa_ratio: " + std::to_string(ratio) + "}",
         .batch = 2,
         .heads_kv = 2,
         .seqlen_q = 33,
         .seqlen_kv = 47});
  return group;
}

GridGroup scores() {
  GridGroup group{"Scores", {}};
  for (const char* dtype : {"bf16", "fp16"})
    for (const char* keys : {"softcap: 15", "softmax_scale: 0.25", "softmax_scale: launch",
                             "softcap: 50, softmax_scale: launch"})
      for (Data data : {Data::normal, Data::outliers})
        group.cases.push_back({.spec = std::string("{head_dim: 64, lse: true, mask: causal, dtype: ") +
                                       dtype + ", " + keys + "}",
                               .seqlen_q = 90,
                               .seqlen_kv = 150,
                               .data = data});
  for (double level : {20.0, 200.0, 3000.0})
    group.cases.push_back({.spec = "{head_dim: 64, lse: true, mask: causal, gqa_ratio: 7}",
                           .seqlen_q = 40,
                           .seqlen_kv = 104,
                           .data = Data::near_minus,
                           .level = level});
  return group;
}

// Walks by range and by scan, look-ups of every element type, scores with and without softcap.
GridGroup expressions() {
  GridGroup group{"Expressions", {}};
  const auto add = [&](const std::string& keys) {
    group.cases.push_back(
        {.spec = "{head_dim: 64, lse: true, gqa_ratio: 2, " + keys + "}",
         .batch = 2,
         .seqlen_q = 333,
         .seqlen_kv = 500,
         .scalars = {{"window", 90}, {"prefix", 200}, {"cap", 5}},
         .tensors = {
             {"start", {{333}, [](const auto& i) { return (i[0] + 167) / 60 * 60; }}},
             {"document", {{500}, [](const auto& i) { return i[0] / 70; }}},
             {"keep", {{2, 500}, [](const auto& i) { return (i[1] + i[0]) % 3 != 0; }}},
             {"table", {{2, 32}, [](const auto& i) { return std::sin(i[0] + 0.3 * i[1]); }}},
             {"slope", {{2}, [](const auto& i) { return 0.1 / (1 + i[0]); }}},
             {"bias", {{2, 1, 333, 500}, [](const auto& i) { return std::sin(i[0] + i[2] * 7 + i[3]); }}}}});
  };
  add("mask: \"q >= kv\"");
  add("mask: \"q >= kv && q - kv < window\", scalars: {window: int}");
  add("mask: \"kv <= q || kv < prefix\", scalars: {prefix: int}");
  add("mask: \"q / 128 == kv / 128 && kv <= q\"");
  add("mask: \"kv >= start[q] && kv <= q\", tensors: {start: 'int32[q]'}");
  add("mask: \"document[q] == document[kv] && kv <= q\", tensors: {document: 'int32[kv]'}");
  add("mask: \"keep[batch, kv]\", tensors: {keep: 'bool[batch, kv]'}");
  add("mask: \"q >= kv && (q - kv < 100 || kv / 16 % 9 == 0)\"");
  add("mask: causal, alibi: true");
  add("mask: causal, bias: true, dtype: fp16");
  add("mask: causal, softcap: 15, score: \"score + table[head, min(abs(q - kv), 31)]\", tensors: {table: "
      "'float32[head, 32]'}");
  add("score: \"cap * tanh(score / cap) - slope[head] * abs(q - kv)\", scalars: {cap: float}, tensors: "
      "{slope: 'float32[head]'}");
  return group;
}

GridGroup layouts() {
  GridGroup group{"Layouts", {}};
  const auto add = [&](const char* layout,
                       std::function<std::vector<int64_t>(char, const std::vector<int64_t>&)> strides) {
    group.cases.push_back(
        {.spec = std::string("{head_dim: 64, lse: true, mask: causal, gqa_ratio: 2, layout: ") + layout + "}",
         .batch = 2,
         .heads_kv = 2,
         .seqlen_q = 72,
         .seqlen_kv = 90,
         .strides = std::move(strides)});
  };
  add("bshd", nullptr);
  add("bhsd", nullptr);
  // One buffer of interleaved heads twice as wide, rows two apart, batches last.
  add("bshd", [](char, const std::vector<int64_t>& s) {
    return std::vector<int64_t>{s[1] * s[2] * s[3] * 2, s[2] * s[3] * 2, s[3] * 2, 1};
  });
  add("bhsd", [](char, const std::vector<int64_t>& s) {
    return std::vector<int64_t>{s[3], s[0] * s[3], s[0] * s[1] * s[3], 1};
  });
  // K and V broadcast over the batch.
  add("bshd", [](char t, const std::vector<int64_t>& s) {
    return t == 'k' || t == 'v' ? std::vector<int64_t>{0, s[2] * s[3], s[3], 1} : std::vector<int64_t>{};
  });
  return group;
}

GridGroup schedules() {
  GridGroup group{"Schedules", {}};
  int i = 0;
  for (int m : {16, 32, 64, 128})
    for (int warps : {1, 2, 4})
      for (int n : {16, 48, 64})
        for (int stages : {1, 2, 3}) {
          if (m % (16 * warps) != 0 || m / warps > 32) continue;
          const bool held = ++i % 2;
          group.cases.push_back({.spec = "{head_dim: 48, lse: true, mask: " + masks[i % masks.size()] +
                                         ", blocks: {m: " + std::to_string(m) + ", n: " + std::to_string(n) +
                                         ", warps: " + std::to_string(warps) +
                                         ", stages: " + std::to_string(stages) +
                                         ", query_in_registers: " + (held ? "true" : "false") + "}}",
                                 .seqlen_q = 75,
                                 .seqlen_kv = 141});
        }
  return group;
}

// Every place of a mask's edges against the edges of tiles of 64 x 16, with windows wide enough for full
// tiles: one wrongly taken for full or empty shows.
GridGroup offsets() {
  GridGroup group{"Offsets", {}};
  for (const char* mask : {"causal", "{window: [100, 0]}", "{window: [90, 9]}"})
    for (int shift = 0; shift <= 16; ++shift)
      group.cases.push_back(
          {.spec = std::string("{head_dim: 16, lse: true, blocks: {m: 64, n: 16}, mask: ") + mask + "}",
           .seqlen_q = 140,
           .seqlen_kv = 140 + shift});
  return group;
}

}  // namespace

// Lengths that leave the last consumers of a tile without rows, and heads enough for blocks to compute
// several tiles.
GridGroup hopper_schedules() {
  GridGroup group{"HopperSchedules", {}};
  int i = 0;
  for (int m : {64, 128, 192, 256})
    for (int n : {16, 48, 80, 112})
      for (int stages : {1, 2, 3})
        for (const char* ping_pong : {"false", "true"}) {
          if (m == 64 && *ping_pong == 't') continue;
          if (m == 256 && n > 48) continue;  // registers
          group.cases.push_back({.spec = "{head_dim: " + std::to_string(i % 2 ? 72 : 64) +
                                         ", lse: true, gqa_ratio: 2, mask: " + masks[i % masks.size()] +
                                         ", blocks: {family: sm90, m: " + std::to_string(m) +
                                         ", n: " + std::to_string(n) + ", stages: " + std::to_string(stages) +
                                         ", ping_pong: " + ping_pong + "}}",
                                 .batch = 2,
                                 .heads_kv = 2,
                                 .seqlen_q = 75 + 64 * (i % 3),
                                 .seqlen_kv = 141});
          ++i;
        }
  return group;
}

// Blocks of a cluster beyond the last row, and with every number of panels to share out.
GridGroup hopper_clusters() {
  GridGroup group{"HopperClusters", {}};
  int i = 0;
  for (const char* head_dim : {"72", "{qk: 192, v: 128}", "256"})
    for (int m : {64, 128})
      for (const char* rest : {"n: 32, stages: 2, ping_pong: false", "n: 48, stages: 1, ping_pong: true"}) {
        group.cases.push_back({.spec = std::string("{head_dim: ") + head_dim +
                                       ", lse: true, gqa_ratio: " + (i % 3 ? "2" : "1") +
                                       ", blocks: {family: sm90, m: " + std::to_string(m) + ", " +
                                       (m == 64 ? "n: 32, stages: 2" : rest) + ", cluster: 2}}",
                               .batch = 2,
                               .heads_kv = 1 + i % 2,
                               .seqlen_q = 70 + 100 * (i % 3),
                               .seqlen_kv = i % 4 ? 117 : 1});
        ++i;
      }
  return group;
}

// Heads folded into rows: few queries and more than a tile, all masks, what else tells heads apart.
GridGroup hopper_pack_groups() {
  GridGroup group{"HopperPackGroups", {}};
  int i = 0;
  for (auto [ratio, folded] : {std::pair(2, 2), std::pair(4, 4), std::pair(8, 8), std::pair(12, 4),
                               std::pair(16, 16), std::pair(64, 64)})
    for (const std::string& mask : masks) {
      const int lengths[] = {1, 5, 17, 70, 3};
      group.cases.push_back({.spec = "{head_dim: " + std::to_string(i % 3 == 1 ? 72 : 64) +
                                     ", lse: true, gqa_ratio: " + std::to_string(ratio) + ", mask: " + mask +
                                     (i % 2 ? ", sinks: true" : "") + (i % 4 == 1 ? ", layout: bhsd" : "") +
                                     (i % 5 == 2 ? ", softcap: 20" : "") + ", blocks: {family: sm90, m: " +
                                     (i % 2 ? "64" : "128, ping_pong: true") +
                                     ", n: 32, stages: 2, pack_group: " + std::to_string(folded) + "}}",
                             .batch = ratio > 16 ? 1 : 2,
                             .heads_kv = 1 + i % 2,
                             .seqlen_q = lengths[i % 5],
                             .seqlen_kv = i % 7 == 3 ? 1 : 101});
      ++i;
    }
  return group;
}

std::vector<GridGroup> attention_grid() {
  return {head_dims(), lengths(), ratios(), scores(), expressions(), layouts(), schedules(), offsets()};
}

}  // namespace tilewright::test
