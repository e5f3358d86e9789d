// An attention spec: WHAT is computed. Everything a launch may vary (batch, heads, lengths, strides) is not
// here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/expression.h"

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

enum class DataType { fp16, bf16, e4m3, e5m2, fp32, int32, boolean };
enum class Pass { forward, backward, decode };
enum class Layout { bshd, bhsd, packed, paged };
enum class Rope { none, interleaved, half };

/// Device code families. `sm80`: mma.sync, ldmatrix, cp.async; it serves every target of compute
/// capability 8.0 on. `sm90`: wgmma, the tensor copy engine, a producer warp and consumer warpgroups; Hopper
/// alone.
enum class Family { sm80, sm90 };

/// Bytes of one element.
int size_of(DataType type);
std::string_view name_of(DataType type);
std::string_view name_of(Pass pass);
std::string_view name_of(Layout layout);
std::string_view name_of(Rope rope);
std::string_view name_of(Family family);

/// Elements per head of Q and K (`qk`) and of V and the output (`v`). Multiples of 8 from 8 to 576.
struct HeadDim {
  int qk = 0;
  int v = 0;
  bool operator==(const HeadDim&) const = default;
};

struct DataTypes {
  DataType q = DataType::bf16;
  DataType kv = DataType::bf16;
  DataType out = DataType::bf16;
  bool operator==(const DataTypes&) const = default;
};

/// Which keys a query sees. With `shift` = seqlen_kv - seqlen_q (0 for causal_top_left) query i sees key j
/// when
///   none: always;  causal, causal_top_left: j <= i + shift;  window: i + shift - left <= j <= i + shift +
///   right; expression: as the expression says.
struct Mask {
  enum class Kind { none, causal, causal_top_left, window, expression };
  /// A window side written `inf`.
  static constexpr int64_t unlimited = INT64_MAX;
  Kind kind = Kind::none;
  int64_t left = unlimited;   // keys before the query's own position; negative is a number, not "unlimited"
  int64_t right = unlimited;  // keys after it
  std::optional<Expression> expression;  // of Kind::expression
  /// A launch gives, for each `m` queries of each head, which blocks of `n` keys they may see; of those keys
  /// they see what the rest says.
  struct Blocks {
    int m = 0, n = 0;
    bool operator==(const Blocks&) const = default;
  };
  std::optional<Blocks> blocks;
  bool operator==(const Mask&) const = default;
};

/// A schedule written by hand under `blocks:`; a field left out is chosen by the default rule.
struct BlockRequest {
  std::optional<Family> family;
  std::optional<int> m, n, stages, warps;
  std::optional<bool> query_in_registers, ping_pong;
  std::optional<int> pack_group, cluster;
  std::optional<std::string> order;  // sm90, backward: a name of backward_orders()
  bool operator==(const BlockRequest&) const = default;
};

struct AttentionSpec {
  std::string name;  // for people; not part of the identity
  Pass pass = Pass::forward;
  HeadDim head_dim;
  DataTypes dtype;
  int gqa_ratio = 1;  // query heads per KV head
  Mask mask;
  std::optional<Expression> score;  // what becomes of scaled and capped scores, before the mask
  Declarations declarations;        // scalars and tensors that mask and score use
  Layout layout = Layout::bshd;
  BlockRequest blocks;
  std::optional<double> softmax_scale;   // absent: 1/sqrt(head_dim.qk)
  bool softmax_scale_at_launch = false;  // `softmax_scale: launch`
  double softcap = 0;  // 0: none; else cap * tanh(score / cap) on scaled scores, before the mask
  bool lse = false;    // also writes log-sum-exp, fp32, natural logarithm, [batch, heads, seqlen_q]
  bool sinks = false;  // a logit for each query head joins the softmax's denominator
  bool alibi = false;  // score - slope * abs(q - kv) with the standard slopes (codegen/kernel_expressions.h)
  bool bias = false;   // score + bias[batch, head, q, kv], a tensor given at launch
  bool bias_gradient = false;  // backward: a launch gives d_bias too, to which the bias's gradient is added
  bool dropout = false;  // probabilities are dropped with a rate given at launch
  bool deterministic = false;
  // Words of the language whose kernels do not exist yet; `supports` gives that as the reason.
  Rope rope = Rope::none;
  int page_size = 0;  // `layout: paged` only

  /// The scale a kernel bakes in (meaningless with `softmax_scale_at_launch`).
  double scale() const;
  bool operator==(const AttentionSpec&) const = default;
};

/// Where in a text something is; both count from 1, 0 is unknown.
struct SourcePosition {
  int line = 0;
  int column = 0;
};

/// Parses one spec. `file` is used in messages only. Throws SpecError ("file:line:column: what is wrong; what
/// was expected; nearest valid choice"). Texts over 64 KiB, aliases, anchors, tags and several documents are
/// refused.
AttentionSpec parse_spec(std::string_view yaml, std::string_view file);

/// The canonical form: YAML with every key that differs from its default, in a fixed order, numbers in one
/// spelling, without name and comments. Equal specs have equal canonical forms; it parses back to an equal
/// spec.
std::string canonical_form(const AttentionSpec& spec);
/// Of `blocks` alone: "{m: 128, n: 64}".
std::string canonical_form(const BlockRequest& blocks);

/// Checks values set by code rather than by YAML (same rules as the parser). Empty: valid.
std::vector<std::string> validate(const AttentionSpec& spec);

}  // namespace tilewright
#pragma GCC visibility pop
