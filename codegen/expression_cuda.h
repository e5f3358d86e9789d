// Expressions as CUDA functions. They call templates/expression_*.cuh and see of the launch what a `Scope`
// holds:
//
//   scope.head, kv_head, batch, seqlen_q, seqlen_kv    int
//   scope.scalar_NAME                                  int or float, of each scalar that is used
//   tensor_NAME(scope, int, …)                         look-up at indices that are not yet clamped (bool, int
//   or float) tensor_NAME_range(scope, IntRange, …)              what may be found there (Truth, IntRange or
//   FloatRange); only of
//                                                      tensors in range_look_ups(mask)
//
// q and kv are positions (docs/expressions.md) of at most max_expression_seqlen.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "codegen/expression.h"

namespace tilewright {

/// `bool mask_of(const Scope& scope, int q, int kv)`
std::string mask_function(const Expression& mask);

/// `float score_of(const Scope& scope, const Positions& at, int row, int column, float score)`, or another
/// name: the derivative is printed alike. `at` is the same for a thread's elements of a tile, row and column
/// come on top of it and are constants.
std::string score_function(const Expression& score, const std::string& name = "score_of");

/// `TileState tile_state(const Scope& scope, int q0, int q1, int kv0, int kv1)`: what the mask is for rows at
/// q0 to q1 and keys kv0 to kv1, the last included. Sound; `mixed` where it cannot tell.
/// Of look-ups in `tables` it and key_range read `table_N_range(scope, tile)`: the first rows and keys that
/// they are asked for begin a tile.
/// `held`: it takes `const KeyLookUps& look_ups` after the scope and finds them there.
std::string tile_state_function(const Expression& mask, const std::vector<Expression>& tables = {},
                                bool held = false);

/// `KeyRange key_range(const Scope& scope, int q0, int q1)`: see key_rule().
std::string key_range_function(const Expression& mask, const std::vector<Expression>& tables = {});

/// `KeyLimits row_limits(const Scope& scope, int q, int key)`: the keys that the row at q sees, counted from
/// `key`; of masks with gives_limits() (expression_key_ranges.h).
std::string row_limits_function(const Expression& mask);

/// Tensors whose look-ups in tile_state and key_range are of ranges: their indices depend on q or kv.
std::set<std::string> range_look_ups(const Expression& mask, const std::vector<Expression>& tables = {});

/// A function of this signature, whose parameters are what the expression uses, that returns its value.
std::string value_function(const std::string& signature, const Expression& expression);

/// The same value all over a tile: uses neither q, kv nor score.
bool is_uniform(const Expression& expression);

}  // namespace tilewright
