#include "tests/support/backward_grid.h"

#include <algorithm>

namespace tilewright::test {
namespace {

const std::vector<std::string> masks = {"none",
                                        "causal",
                                        "causal_top_left",
                                        "{window: [20, 0]}",
                                        "{window: [33, 7]}",
                                        "{window: [inf, 5]}",
                                        "{window: [40, -8]}"};

std::string spec_of(const std::string& keys) {
  return "{pass: backward, " + keys + "}";
}

// Masks take turns over the head dims, so that every pair of neighbours in the grid differs in both.
GridGroup head_dims() {
  GridGroup group{"HeadDims", {}};
  int i = 0;
  for (const char* dim : {"8", "16", "24", "40", "64", "72", "80", "96", "104", "128", "136", "192", "256",
                          "{qk: 192, v: 128}", "{qk: 40, v: 72}", "{qk: 128, v: 24}", "{qk: 64, v: 256}"}) {
    group.cases.push_back({.spec = spec_of(std::string("head_dim: ") + dim + ", dtype: " +
                                           (i % 2 ? "fp16" : "bf16") + ", mask: " + masks[i % masks.size()]),
                           .seqlen_q = 65,
                           .seqlen_kv = 81});
    ++i;
  }
  return group;
}

GridGroup lengths() {
  GridGroup group{"Lengths", {}};
  for (const std::string& mask : masks)
    for (auto [q, kv] :
         std::vector<std::pair<int, int>>{{0, 5}, {5, 0}, {1, 1}, {64, 63}, {65, 127}, {129, 40}})
      group.cases.push_back({.spec = spec_of("head_dim: 16, blocks: {m: 32, n: 32, warps: 4}, mask: " + mask),
                             .batch = 2,
                             .seqlen_q = q,
                             .seqlen_kv = kv});
  return group;
}

GridGroup ratios() {
  GridGroup group{"Ratios", {}};
  for (int ratio : {2, 5, 7, 12})
    group.cases.push_back({.spec = spec_of("head_dim: 32, mask: causal, gqa_ratio: " + std::to_string(ratio)),
                           .batch = 2,
                           .heads_kv = 2,
                           .seqlen_q = 33,
                           .seqlen_kv = 47});
  return group;
}

GridGroup scores() {
  GridGroup group{"Scores", {}};
  for (const char* dtype : {"bf16", "fp16"})
    for (const char* keys : {"softcap: 15", "softmax_scale: 0.25", "softmax_scale: launch", "lse: true",
                             "softcap: 50, softmax_scale: launch, lse: true"})
      for (Data data : {Data::normal, Data::outliers})
        group.cases.push_back(
            {.spec = spec_of(std::string("head_dim: 64, mask: causal, dtype: ") + dtype + ", " + keys),
             .seqlen_q = 70,
             .seqlen_kv = 90,
             .data = data});
  for (double level : {20.0, 200.0, 3000.0})
    group.cases.push_back({.spec = spec_of("head_dim: 64, mask: causal, gqa_ratio: 3"),
                           .seqlen_q = 40,
                           .seqlen_kv = 70,
                           .data = Data::near_minus,
                           .level = level});
  return group;
}

GridGroup layouts() {
  GridGroup group{"Layouts", {}};
  const auto add = [&](const char* layout,
                       std::function<std::vector<int64_t>(char, const std::vector<int64_t>&)> strides) {
    group.cases.push_back(
        {.spec =
             spec_of(std::string("head_dim: 64, lse: true, mask: causal, gqa_ratio: 2, layout: ") + layout),
         .batch = 2,
         .heads_kv = 2,
         .seqlen_q = 52,
         .seqlen_kv = 70,
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
  // K, V and dO broadcast over the batch.
  add("bshd", [](char t, const std::vector<int64_t>& s) {
    return t == 'k' || t == 'v' || t == 'd' ? std::vector<int64_t>{0, s[2] * s[3], s[3], 1}
                                            : std::vector<int64_t>{};
  });
  return group;
}

GridGroup sinks() {
  GridGroup group{"Sinks", {}};
  const auto add = [&](const std::string& keys, int64_t q, int64_t kv) -> AttentionCase& {
    return group.cases.emplace_back(AttentionCase{
        .spec = spec_of("sinks: true, " + keys), .batch = 2, .heads_kv = 2, .seqlen_q = q, .seqlen_kv = kv});
  };
  add("head_dim: 64, mask: {window: [20, 0]}, gqa_ratio: 4", 200, 200);
  add("head_dim: 32, mask: causal, lse: true, dtype: fp16, softcap: 20", 90, 70);  // rows without keys
  add("head_dim: 16, deterministic: true, gqa_ratio: 2", 40, 70);
  add("head_dim: 16, lse: true", 33, 0);
  add("head_dim: 16, lse: true", 0, 33);
  AttentionCase& enormous = add("head_dim: 64, mask: causal", 40, 70);
  enormous.data = Data::near_minus, enormous.level = 200;
  return group;
}

/// Scalars and tensors by the names that specs declare.
AttentionCase with_expressions(const std::string& keys, int64_t q, int64_t kv, int64_t batch = 2,
                               int64_t heads_kv = 1) {
  AttentionCase attention{
      .spec = spec_of(keys), .batch = batch, .heads_kv = heads_kv, .seqlen_q = q, .seqlen_kv = kv};
  const auto ratio = keys.find("gqa_ratio: 2") == keys.npos ? 1 : 2;
  attention.scalars = {{"window", 24}, {"cap", 3}, {"strength", 0.4}};
  attention.tensors["document"] = {{kv}, [=](const auto& i) { return i[0] * 5 / kv; }};
  attention.tensors["start"] = {{q},
                                [=](const auto& i) { return i[0] * 3 / std::max<int64_t>(q, 1) * kv / 4; }};
  attention.tensors["prefix"] = {{batch}, [](const auto& i) { return 10 + 30 * i[0]; }};
  attention.tensors["reach"] = {{heads_kv * ratio}, [](const auto& i) { return 8 + 40 * i[0]; }};
  attention.tensors["slope"] = {{heads_kv * ratio},
                                [](const auto& i) { return 0.1 + 0.1 * static_cast<double>(i[0]); }};
  attention.tensors["bias"] = {{batch, 1, q, kv}, [](const auto& i) {
                                 return static_cast<double>((i[0] * 7 + i[2] * 3 + i[3] * 5) % 11) / 4 - 1;
                               }};
  return attention;
}

GridGroup changed_scores() {
  GridGroup group{"ChangedScores", {}};
  group.cases = {
      with_expressions("head_dim: 32, alibi: true, mask: causal, gqa_ratio: 2, blocks: {m: 64}", 70, 90),
      with_expressions("head_dim: 64, bias: true, mask: {window: [33, 7]}", 90, 70),
      with_expressions(
          "head_dim: 16, alibi: true, bias: true, softcap: 20, dtype: fp16, lse: true, sinks: true", 40, 70),
      with_expressions(
          "head_dim: 32, score: \"cap * tanh(score / cap) - strength * abs(q - kv)\", scalars: {cap: float, "
          "strength: float}, mask: causal",
          80, 80),
      with_expressions(
          "head_dim: 24, softcap: 30, score: \"score * score * 0.1 + slope[head] * score\", tensors: "
          "{slope: float32[head]}, gqa_ratio: 2, mask: {window: [20, 0]}",
          80, 100),
      with_expressions(
          "head_dim: 128, score: \"kv % 3 == 0 ? -inf : exp(min(score, 2.0))\", mask: causal_top_left", 70,
          50),
      with_expressions("head_dim: 192, score: \"log(max(score, 0.0))\"", 40, 40),
  };
  return group;
}

GridGroup mask_expressions() {
  GridGroup group{"MaskExpressions", {}};
  const std::string shapes[] = {"head_dim: 32, blocks: {m: 64}, ",
                                "head_dim: 64, gqa_ratio: 2, dtype: fp16, ", "head_dim: 256, "};
  const std::string masks[] = {
      "mask: \"q >= kv && q - kv < window && document[q] == document[kv]\", scalars: {window: int}, tensors: "
      "{document: int32[kv]}",
      "mask: \"q >= kv && kv >= start[q]\", tensors: {start: int32[q]}",
      "mask: \"q >= kv || kv < prefix[batch]\", tensors: {prefix: int32[batch]}, softcap: 20",
      "mask: \"q >= kv && (q - kv < 16 || kv < 4)\", sinks: true",
      "mask: \"abs(q - kv) < reach[head] && (q - kv) % 2 == 0\", tensors: {reach: int32[head]}",
      "mask: \"q >= kv && q / 32 == kv / 32\", score: \"score + slope[head] * tanh(score)\", tensors: "
      "{slope: "
      "float32[head]}, lse: true",
      "mask: \"q > kv + 60\", alibi: true"};
  int i = 0;
  for (const std::string& mask : masks) {
    const auto [q, kv] = std::vector<std::pair<int, int>>{{150, 150}, {70, 200}, {200, 70}}[i % 3];
    group.cases.push_back(with_expressions(shapes[i % 3] + mask, q, kv));
    ++i;
  }
  group.cases.push_back(with_expressions("head_dim: 16, " + masks[3], 0, 33));
  group.cases.push_back(with_expressions("head_dim: 16, " + masks[3], 33, 0));
  return group;
}

}  // namespace

GridGroup backward_schedules() {
  GridGroup group{"Schedules", {}};
  int i = 0;
  for (int m : {16, 32, 64, 128})
    for (int n : {16, 48, 64, 128})
      for (int warps : {1, 4, 8})
        for (int stages : {1, 2}) {
          const int tiles = m / 16 * (n / 16);
          const int registers = (3 * n + std::max(16 * tiles, 3 * m / 2)) / warps;  // of a thread
          if (tiles < warps || registers > 200) continue;
          if (++i % 2) continue;  // half of them, the masks in turns
          const bool even = m % (16 * warps) == 0 || n % (16 * warps) == 0 || warps == 1;
          if (!even) continue;
          group.cases.push_back(
              {.spec =
                   spec_of("head_dim: 48, mask: " + masks[i / 2 % masks.size()] +
                           ", blocks: {family: sm80, m: " + std::to_string(m) + ", n: " + std::to_string(n) +
                           ", warps: " + std::to_string(warps) + ", stages: " + std::to_string(stages) + "}"),
               .seqlen_q = 75,
               .seqlen_kv = 101});
        }
  return group;
}

std::vector<GridGroup> backward_grid() {
  return {head_dims(), lengths(), ratios(),         scores(),
          layouts(),   sinks(),   changed_scores(), mask_expressions()};
}

}  // namespace tilewright::test
