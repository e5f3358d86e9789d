// What a spec's mask, score, alibi and bias ask of a kernel, and the text of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/spec.h"

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

/// How the tiles of keys that a tile of query rows visits are found.
enum class KeyWalkKind {
  window,  // by the limits of a mask without an expression
  range,   // the mask's comparisons give the range in closed form
  scan     // tile by tile, by the mask's interval analysis
};

/// The trees that a kernel evaluates. An expression that only says how far a query sees to its left and right
/// is no expression any more: its kernel is that of the equal window. So is the score 50 * tanh(score / 50).
struct KernelExpressions {
  Mask window;                     // of kind none where `mask` says what is seen
  std::optional<Expression> mask;  // a bool
  double softcap = 0;              // the spec's, or of a score that says no more than it; 0: none
  std::optional<Expression>
      score;                  // what becomes of a scaled and capped score: `score`, then alibi, then bias
  Declarations declarations;  // of all names in them, those of alibi and bias among them
  KeyWalkKind walk = KeyWalkKind::window;
  bool has_limits = false;       // the mask gives each row a range of keys
  bool walks_by_warp = false;    // finding tiles takes all lanes of a warp
  bool last_rows_first = false;  // later rows see more keys: their tiles start first

  bool sees_part = false;  // an expression limits the keys of a row on both sides, to how many is not known
  std::optional<Expression>
      slope;  // the derivative of `score` by the scaled and capped score, unless it is 1

  std::vector<Expression> tables;  // look-ups of the mask that have tables (codegen/look_up_tables.h)

  bool any() const { return mask || score; }
  /// Heads or batches may see different keys.
  bool mask_knows_heads() const;
  /// What becomes of a scaled score has a derivative other than 1.
  bool has_slope() const { return softcap != 0 || slope; }
};
KernelExpressions kernel_expressions(const AttentionSpec& spec);

/// What becomes of a scaled and capped score by the spec as it is written, which references go by: `score`,
/// then alibi, then bias. Nothing for a spec without them.
std::optional<Expression> score_expression(const AttentionSpec& spec);

/// `alibi: true`: a launch gives the largest power of two up to the number of heads, n, under the first name;
/// of it follows a head's slope, under the second. The standard slopes are 2^(-8 (head + 1) / n) for n heads;
/// further heads take every other one of twice as many.
inline constexpr const char* alibi_scalar = "alibi_heads";
inline constexpr const char* alibi_slope_name = "alibi_slope";
int64_t alibi_heads(int64_t heads);
double alibi_slope(int64_t head, int64_t heads);

/// `bias: true` makes it a tensor of this name: [batch, head, q, kv] of q's type.
inline constexpr const char* bias_tensor = "bias";
/// `bias_gradient: true`: the tensor of bias's shape in fp32 that its gradient is added to.
inline constexpr const char* bias_gradient_tensor = "d_bias";

/// Of the names that a launch gives: the spec's own, and those of alibi and bias.
Declarations launch_declarations(const AttentionSpec& spec);

/// The same with the gradient of the bias: what kernels take.
Declarations kernel_declarations(const AttentionSpec& spec);

/// The declarations that a kernel takes beside its templates: what a launch gives (ExpressionArguments), what
/// expressions see (Scope), look-ups, and the functions of mask and score.
std::string expression_declarations(const AttentionSpec& spec, const KernelExpressions& expressions);

}  // namespace tilewright
#pragma GCC visibility pop
