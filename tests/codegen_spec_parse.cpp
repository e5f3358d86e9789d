// What the spec parser accepts, and the message for everything it refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "codegen/error.h"
#include "codegen/spec.h"

namespace tilewright {
namespace {

TEST(SpecParse, ReadsEveryKey) {
  AttentionSpec spec = parse_spec(R"(
name: everything
pass: backward
head_dim: {qk: 192, v: 128}
dtype: {q: bf16, kv: e4m3, out: fp16}
gqa_ratio: 7
mask: {window: [4095, 0]}
layout: paged
page_size: 48
blocks: {m: 128, n: 64, stages: 3, warps: 4, query_in_registers: true}
softmax_scale: 0.25
softcap: 50
lse: true
alibi: true
bias: true
sinks: true
dropout: true
deterministic: true
rope: half
)",
                                  "spec.yaml");
  EXPECT_EQ(spec.name, "everything");
  EXPECT_EQ(spec.pass, Pass::backward);
  EXPECT_EQ(spec.head_dim, (HeadDim{192, 128}));
  EXPECT_EQ(spec.dtype, (DataTypes{DataType::bf16, DataType::e4m3, DataType::fp16}));
  EXPECT_EQ(spec.gqa_ratio, 7);
  EXPECT_EQ(spec.mask, (Mask{Mask::Kind::window, 4095, 0}));
  EXPECT_EQ(spec.layout, Layout::paged);
  EXPECT_EQ(spec.page_size, 48);
  EXPECT_EQ(spec.blocks, (BlockRequest{{}, 128, 64, 3, 4, true}));
  EXPECT_EQ(spec.softmax_scale, 0.25);
  EXPECT_FALSE(spec.softmax_scale_at_launch);
  EXPECT_EQ(spec.softcap, 50);
  EXPECT_TRUE(spec.lse && spec.alibi && spec.bias && spec.sinks && spec.dropout && spec.deterministic);
  EXPECT_EQ(spec.rope, Rope::half);
}

TEST(SpecParse, DefaultsFollowFromHeadDimAlone) {
  AttentionSpec spec = parse_spec("head_dim: 128\n", "spec.yaml");
  AttentionSpec expected;
  expected.head_dim = {128, 128};
  EXPECT_EQ(spec, expected);
  EXPECT_DOUBLE_EQ(spec.scale(), 1 / std::sqrt(128.0));
}

struct Accepted {
  const char* yaml;
  bool (*holds)(const AttentionSpec&);
};

TEST(SpecParse, Accepts) {
  const Accepted cases[] = {
      {"head_dim: 576",
       [](auto& s) {
         return s.head_dim == HeadDim{576, 576};
       }},
      {"head_dim: 8",
       [](auto& s) {
         return s.head_dim == HeadDim{8, 8};
       }},
      {"{head_dim: 64, mask: none}", [](auto& s) { return s.mask.kind == Mask::Kind::none; }},
      {"head_dim: 64\nmask: causal_top_left",
       [](auto& s) { return s.mask.kind == Mask::Kind::causal_top_left; }},
      {"head_dim: 64\nmask: {window: [inf, 0]}",
       [](auto& s) {
         return s.mask == Mask{Mask::Kind::window, Mask::unlimited, 0};
       }},
      {"head_dim: 64\nmask: {window: [64, -32]}",
       [](auto& s) {
         return s.mask == Mask{Mask::Kind::window, 64, -32};
       }},
      {"head_dim: 64\nmask:\n  window:\n  - 1\n  - inf\n",
       [](auto& s) {
         return s.mask == Mask{Mask::Kind::window, 1, Mask::unlimited};
       }},
      {"head_dim: 64\nmask: {window: [2147483648, -2147483648]}",
       [](auto& s) { return s.mask.left == int64_t{1} << 31 && s.mask.right == -(int64_t{1} << 31); }},
      {"head_dim: 64\nsoftmax_scale: launch",
       [](auto& s) { return s.softmax_scale_at_launch && !s.softmax_scale; }},
      {"head_dim: 64\nsoftmax_scale: 1e-3", [](auto& s) { return s.softmax_scale == 1e-3; }},
      {"head_dim: 64\nsoftcap: 0", [](auto& s) { return s.softcap == 0; }},
      {"head_dim: 64\nblocks: auto", [](auto& s) { return s.blocks == BlockRequest{}; }},
      {"head_dim: 64\nblocks: {n: 32}", [](auto& s) { return s.blocks.n == 32 && !s.blocks.m; }},
      {"head_dim: 64\nrope: none", [](auto& s) { return s.rope == Rope::none; }},
      {"head_dim: 64\ndtype: \"fp16\"", [](auto& s) { return s.dtype.q == DataType::fp16; }},
      {"\xEF\xBB\xBFhead_dim: 64\r\nname: 'Größe 1'\r\n", [](auto& s) { return s.name == "Größe 1"; }},
      {"# a comment\n---\nhead_dim: 64 # another\n...\n", [](auto& s) { return s.head_dim.qk == 64; }},
  };
  for (const Accepted& accepted : cases) {
    SCOPED_TRACE(accepted.yaml);
    try {
      EXPECT_TRUE(accepted.holds(parse_spec(accepted.yaml, "spec.yaml")));
    } catch (const SpecError& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

struct Refused {
  std::string yaml;
  std::string message;  // whole, after "spec.yaml:"
};

void expect_refused(const std::vector<Refused>& cases) {
  for (const Refused& refused : cases) {
    SCOPED_TRACE(refused.yaml.substr(0, 200));
    try {
      parse_spec(refused.yaml, "spec.yaml");
      ADD_FAILURE() << "accepted";
    } catch (const SpecError& error) {
      std::string expected = "spec.yaml:" + refused.message;
      EXPECT_EQ(std::string(error.what()).substr(0, expected.size()), expected);
      std::string place = std::to_string(error.line()) + ":" + std::to_string(error.column()) + ":";
      EXPECT_TRUE(refused.message.starts_with(place)) << place;
      EXPECT_EQ(error.kind(), ErrorKind::spec);
    }
  }
}

TEST(SpecParse, RefusesUnknownAndDuplicateKeys) {
  expect_refused({
      {"name: x\nhead_dm: 96\n",
       "2:1: unknown key 'head_dm'; expected one of name, pass, head_dim, dtype, gqa_ratio, mask, score, scalars, tensors, layout, "
       "page_size, "
       "blocks, softmax_scale, softcap, lse, alibi, bias, bias_gradient, sinks, dropout, deterministic, rope; nearest: "
       "head_dim"},
      {"head_dim: 64\nhead_dim: 64\n",
       "2:1: duplicate key 'head_dim'; expected each key once, it is on line 1"},
      {"head_dim: 64\nzzzzzzzzzz: 1\n", "2:1: unknown key 'zzzzzzzzzz'; expected one of name, "},
      {"head_dim: {qk: 64, vv: 64}", "1:20: unknown key 'vv' in head_dim; expected one of qk, v; nearest: v"},
      {"head_dim: {qk: 64, qk: 64}", "1:20: duplicate key 'qk'"},
      {"head_dim: 64\ndtype: {q: fp16, k: fp16}",
       "2:18: unknown key 'k' in dtype; expected one of q, kv, out; nearest: kv"},
      {"head_dim: 64\nmask: {windw: [1, 0]}",
       "2:8: unknown key 'windw' in mask; expected one of window, blocks, with; nearest: window"},
      {"head_dim: 64\nmask: {blocks: {m: 64}}", "2:16: mask.blocks is incomplete; expected both keys"},
      {"head_dim: 64\nmask: {blocks: {m: 96, n: 64}}",
       "2:20: mask.blocks.m: 96 is not valid; expected a multiple of 64 from 64 to 4096; nearest: 64 and 128"},
      {"head_dim: 64\nmask: {with: causal}", "2:14: mask.with: without blocks"},
      {"head_dim: 64\nmask: {blocks: {m: 64, n: 64}, window: [1, 0]}", "2:40: mask.window: beside other keys"},
      {"head_dim: 64\nmask: {blocks: {m: 64, n: 64}, with: {blocks: {m: 64, n: 64}}}",
       "2:38: mask.with: expected another mask"},
      {"head_dim: 64\nblocks: {cluster: 4}", "2:19: blocks.cluster: 4 is not valid; expected an integer from 1 to 2"},
      {"head_dim: 64\nblocks: {block_m: 64}",
       "2:10: unknown key 'block_m' in blocks; expected one of family, m, n, stages, warps, query_in_registers, ping_pong"},
      {"head_dim: 64\n<<: {lse: true}\n", "2:1: unknown key '<<'"},
  });
}

TEST(SpecParse, RefusesValuesOutOfRange) {
  expect_refused({
      {"head_dim: 100",
       "1:11: head_dim: 100 is not valid; expected a multiple of 8 from 8 to 576, or {qk: …, v: …}; nearest: "
       "96 and "
       "104"},
      {"head_dim: 0",
       "1:11: head_dim: 0 is not valid; expected a multiple of 8 from 8 to 576, or {qk: …, v: …}; "
       "nearest: 8"},
      {"head_dim: -64", "1:11: head_dim: -64 is not valid; "},
      {"head_dim: 584",
       "1:11: head_dim: 584 is not valid; expected a multiple of 8 from 8 to 576, or {qk: …, v: …}; "
       "nearest: 576"},
      {"head_dim: 4294967360", "1:11: head_dim: 4294967360 is not valid; "},
      {"head_dim: 99999999999999999999999",
       "1:11: head_dim: '99999999999999999999999' is not valid; expected a multiple of 8 from 8 to 576, or "
       "{qk: …, "
       "v: …}; nearest: 576"},
      {"head_dim: {qk: 64, v: 60}",
       "1:23: head_dim.v: 60 is not valid; expected a multiple of 8 from 8 to 576; nearest: 56 and 64"},
      {"head_dim: {qk: 64}", "1:11: head_dim is incomplete; expected both keys"},
      {"name: x", "1:1: head_dim is missing; expected a multiple of 8 from 8 to 576"},
      {"head_dim: 64\ngqa_ratio: 0",
       "2:12: gqa_ratio: 0 is not valid; expected an integer from 1 to 1048576; "
       "nearest: 1"},
      {"head_dim: 64\nmask: {window: [2147483649, 0]}",
       "2:17: mask.window: 2147483649 is not valid; expected an integer from -2147483648 to 2147483648, or "
       "inf for an "
       "unlimited side; nearest: 2147483648"},
      {"head_dim: 64\nmask: {window: [9223372036854775807, 0]}",
       "2:17: mask.window: 9223372036854775807 is not valid"},
      {"head_dim: 64\nmask: {window: [3, -4]}",
       "2:16: mask.window: [3, -4] is empty: no query would ever see a key; expected left + right of at "
       "least 0"},
      {"head_dim: 64\npage_size: 16",
       "2:12: page_size: has no meaning with layout bshd; expected `layout: paged`, or no page_size"},
      {"head_dim: 64\nlayout: paged",
       "2:9: layout: paged needs a page_size; expected `page_size:` with an integer"},
      {"head_dim: 64\nlayout: paged\npage_size: 0", "3:12: page_size: 0 is not valid"},
      {"head_dim: 64\nblocks: {m: 100}",
       "2:13: blocks.m: 100 is not valid; expected a multiple of 16 from 16 to 512; nearest: 96 and 112"},
      {"head_dim: 64\nblocks: {stages: 0}", "2:18: blocks.stages: 0 is not valid"},
      {"head_dim: 64\nblocks: {warps: 33}", "2:17: blocks.warps: 33 is not valid"},
      {"head_dim: 64\nsoftmax_scale: 0",
       "2:16: softmax_scale: 0 is not valid; expected a number from 1e-12 to 1e+12, or `launch`; nearest: "
       "1e-12"},
      {"head_dim: 64\nsoftmax_scale: -1", "2:16: softmax_scale: -1 is not valid"},
      {"head_dim: 64\nsoftcap: -5",
       "2:10: softcap: -5 is not valid; expected 0 or a number from 1e-06 to 1e+06; nearest: 0"},
      {"head_dim: 64\nsoftcap: 1e7", "2:10: softcap: 1e+07 is not valid"},
      {"head_dim: 64\nname: \"a\\nb\"",
       "2:7: name: 'a?b' is not valid; expected at most 128 printable bytes"},
      {"head_dim: 64\nname: " + std::string(129, 'n'), "2:7: name: 'nnnn"},
  });
}

TEST(SpecParse, RefusesWrongTypes) {
  expect_refused({
      {"head_dim: big", "1:11: head_dim: 'big' is not valid; expected a multiple of 8"},
      {"head_dim: \"128\"",
       "1:11: head_dim: '128' is not valid; expected a multiple of 8 from 8 to 576, or {qk: …, v: "
       "…} without quotation marks"},
      {"head_dim: 128.0", "1:11: head_dim: '128.0' is not valid"},
      {"head_dim: 1e2", "1:11: head_dim: '1e2' is not valid"},
      {"head_dim: 0x40", "1:11: head_dim: '0x40' is not valid"},
      {"head_dim: 064",
       "1:11: head_dim: '064' is not valid; expected a multiple of 8 from 8 to 576, or {qk: …, v: …} "
       "without leading zeros"},
      {"head_dim: [64, 64]", "1:11: head_dim: a list is not valid"},
      {"name: x\nhead_dim:", "2:1: head_dim: nothing is not valid"},
      {"head_dim: 64\npass: prefill",
       "2:7: pass: 'prefill' is not valid; expected one of forward, backward, decode"},
      {"head_dim: 64\npass: foward",
       "2:7: pass: 'foward' is not valid; expected one of forward, backward, decode; "
       "nearest: forward"},
      {"head_dim: 64\ndtype: {q: bf16, kv: q5_1, out: bf16}",
       "2:22: dtype.kv: 'q5_1' is not valid; expected one of fp16, bf16, e4m3, e5m2"},
      {"head_dim: 64\ndtype: fp32",
       "2:8: dtype: 'fp32' is not valid; expected one of fp16, bf16, e4m3, e5m2"},
      {"head_dim: 64\ndtype: {q: bf16}", "2:8: dtype is incomplete; expected all three keys"},
      {"head_dim: 64\nlayout: bsdh",
       "2:9: layout: 'bsdh' is not valid; expected one of bshd, bhsd, packed, paged; "
       "nearest: bshd"},
      {"head_dim: 64\nmask: casual",
       "2:7: mask: 'casual' is not valid; expected one of none, causal, causal_top_left, {window: [left, "
       "right]}, or an expression such as \"q >= kv\"; "
       "nearest: causal"},
      {"head_dim: 64\nmask: window",
       "2:7: mask: 'window' is not valid; expected one of none, causal, causal_top_left, "
       "{window: [left, right]}, or an expression such as \"q >= kv\"; nearest: {window: [left, right]}"},
      {"head_dim: 64\nmask: \"q >= kv && q - kv < windw\"\nscalars: {window: int}",
       "2:28: mask: unknown name 'windw'; expected q, kv, head, kv_head, batch, seqlen_q, seqlen_kv, window, or a "
       "declaration in `scalars:` or `tensors:`; nearest: window\n  q >= kv && q - kv < windw\n"
       "                      ^"},
      {"head_dim: 64\nname: \"\u00e9\"\nmask: q >= kw", "3:12: mask: unknown name 'kw'"},
      {"{name: \"\xc3\xa9\", mask: 'q >= kw'}", "1:26: mask: unknown name 'kw'"},
      {"head_dim: 64\nmask: >-\n  q >= kv\n  && q < kw\n",
       "2:7: mask: unknown name 'kw'; expected q, kv, head, kv_head, batch, seqlen_q, seqlen_kv, or a declaration in "
       "`scalars:` or `tensors:`; nearest: kv\n  q >= kv && q < kw\n                 ^"},
      {"head_dim: 64\nmask: q < 3 ? true : false",
       "2:20: malformed YAML: illegal map value; a text that holds `: ` needs quotation marks"},
      {"head_dim: 64\nmask: !(q < kv)",
       "2:7: tags are not part of the language; expected a plain value, or quotation marks around a text that begins "
       "with `!`"},
      {"head_dim: 64\nmask: causal top left", "2:7: mask: unknown name 'causal'"},
      {"head_dim: 64\nscore: q > kv", "2:8: score: a score is a number and this is a bool"},
      {"head_dim: 64\nscore: [1]", "2:8: score: expected an expression, such as"},
      {"head_dim: 64\nscalars: {window: integer}\n",
       "2:19: scalars.window: 'integer' is not valid; expected int or float"},
      {"head_dim: 64\nscalars: [window]", "2:10: scalars: expected a map of names"},
      {"head_dim: 64\nmask: q < window\nscalars: {window: int, cap: float}",
       "3:24: scalars.cap: neither mask nor score uses it; expected a use, or no declaration"},
      {"head_dim: 64\nmask: q < 1\nscalars: {kv: int}",
       "3:11: scalars.kv: `kv` is a word of the expression language; expected another name"},
      {"head_dim: 64\nmask: q < 1\nscalars: {a b: int}", "3:11: scalars.a b: 'a b' is no name; expected letters"},
      {"head_dim: 64\nmask: x[q] < x\nscalars: {x: int}\ntensors: {x: int32[q]}",
       "4:11: tensors.x: a scalar has this name already; expected another name"},
      {"head_dim: 64\ntensors: {x: int32[qq]}",
       "2:20: tensors.x: found 'qq'; expected a dimension: one of q, kv, head, kv_head, batch, or a number; nearest: "
       "q\n  int32[qq]\n        ^"},
      {"head_dim: 64\ntensors: {x: [int32]}", "2:14: tensors.x: expected an element type and dimensions"},
      {"head_dim: 64\nmask: {window: [1]}", "2:16: mask.window: expected two sides, [left, right]"},
      {"head_dim: 64\nmask: {window: 4096}", "2:16: mask.window: expected two sides, [left, right]"},
      {"head_dim: 64\nmask: {window: [infinite, 0]}",
       "2:17: mask.window: 'infinite' is not valid; expected an integer"},
      {"head_dim: 64\nmask: {}", "2:7: mask: an empty map; expected {window: [left, right]}"},
      {"head_dim: 64\nlse: yes", "2:6: lse: 'yes' is not valid; expected true or false"},
      {"head_dim: 64\nlse: 1", "2:6: lse: '1' is not valid; expected true or false"},
      {"head_dim: 64\nlse: \"true\"", "2:6: lse: 'true' is not valid; expected true or false"},
      {"head_dim: 64\ndropout: 0.1",
       "2:10: dropout: '0.1' is not valid; expected true or false; the probability is given at launch"},
      {"head_dim: 64\nrope: true",
       "2:7: rope: true does not say how elements are paired; expected interleaved (2i with "
       "2i + 1) or half (i with i + head_dim / 2)"},
      {"head_dim: 64\nblocks: atuo",
       "2:9: blocks: 'atuo' is not valid; expected auto, or a map with any of family, m, n, "
       "stages, warps, query_in_registers, ping_pong, pack_group, cluster, order; nearest: auto"},
      {"head_dim: 64\nsoftmax_scale: nan", "2:16: softmax_scale: 'nan' is not valid"},
      {"head_dim: 64\nsoftmax_scale: .inf", "2:16: softmax_scale: '.inf' is not valid"},
      {"head_dim: 64\nsoftcap: inf", "2:10: softcap: 'inf' is not valid"},
      {"head_dim: 64\nsoftcap: 1e999", "2:10: softcap: '1e999' is not valid"},
      {"head_dim: 64\nsoftcap: 1,5", "2:10: softcap: '1,5' is not valid"},
      {"head_dim: 64\nname: [a]", "2:7: name: a list is not valid; expected a text"},
      {"- head_dim: 64", "1:1: found a list; expected a map of keys, such as `head_dim: 128`"},
      {"head_dim", "1:1: found 'head_dim'; expected a map of keys"},
  });
}

TEST(SpecParse, RefusesYamlBeyondTheSubset) {
  expect_refused({
      {"", "1:1: the spec is empty; expected at least `head_dim: 128`"},
      {"# only a comment\n", "1:1: the spec is empty"},
      {"head_dim: &size 64", "1:11: anchors (&name) are not part of the language"},
      {"a: &a [x]\nb: [*a, *a]", "1:4: anchors (&name) are not part of the language"},
      {"head_dim: !!int 64", "1:11: tags are not part of the language"},
      {"head_dim: 64\n---\nhead_dim: 72\n", "3:1: a second document starts here; expected one spec a file"},
      {"? [head_dim]\n: 64", "1:3: this key is not a word"},
      {"head_dim: [[[[[[[[[[1]]]]]]]]]]", "1:18: nested more than 8 levels deep"},
      {std::string("head_dim: 64\0", 13), "1:13: control character 0x00; expected printable text"},
      {"head_dim: 64\nname: \x1b[31m", "2:7: control character 0x1b"},
      {"head_dim: 64\nname: caf\xE9\n", "2:10: this byte is not UTF-8"},
      {"head_dim: 64\nname: \xC0\x80\n", "2:7: this byte is not UTF-8"},
      {std::string(64 * 1024 + 1, '#'), "1:1: the text has over 65536 bytes; expected at most 65536"},
  });
}

/// Where exactly malformed YAML is noticed is the YAML library's affair, but it is noticed, with a place.
TEST(SpecParse, RefusesMalformedYaml) {
  for (const char* text :
       {"head_dim: [64\nlse: true", "head_dim: *unknown", "\thead_dim: 64", "head_dim: \"64", "{a: b"}) {
    try {
      parse_spec(text, "spec.yaml");
      ADD_FAILURE() << text;
    } catch (const SpecError& error) {
      EXPECT_NE(std::string(error.what()).find(": malformed YAML: "), std::string::npos) << error.what();
      EXPECT_GE(error.line(), 1);
      EXPECT_GE(error.column(), 1);
    }
  }
}

TEST(SpecParse, NestedFlowTextOfFullSizeIsRefusedQuickly) {
  for (const char* unit : {"[", "{", "{a: ", "? ", "- ", "a: ", "[a: "}) {
    std::string text;
    while (text.size() + 8 < 64 * 1024) text += unit;
    EXPECT_THROW(parse_spec(text, "spec.yaml"), SpecError) << unit;
  }
}

}  // namespace
}  // namespace tilewright
