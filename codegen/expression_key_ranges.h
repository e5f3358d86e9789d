// Closed forms: the keys that a tile of query rows may see as a range that follows from the mask's
// comparisons, so that skipping the others costs nothing per tile of keys.
#pragma once

#include <optional>
#include <vector>

#include "codegen/expression.h"
#include "codegen/expression_ranges.h"

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

/// What a mask says of keys, as far as it compares kv with what does not depend on kv.
struct KeyRule {
  enum class Kind {
    unknown,   // anything: such as document[kv] == 3
    at_most,   // kv <= expression
    at_least,  // kv >= expression
    when,      // all keys where the expression, which does not use kv, holds
    all_of,    // of `rules`
    any_of,
    provided  // rules[0] where expression > 0, and unknown otherwise
  };
  Kind kind = Kind::unknown;
  std::optional<Expression> expression;  // without kv
  std::vector<KeyRule> rules;
};

/// Linear comparisons, also behind abs, min, max and division, and what && || ! ?: make of them.
KeyRule key_rule(const Expression& mask);

/// Whether the range says all: no tile between begin and end is empty, none outside of [full_begin, full_end)
/// full. If not, looking at tiles one by one may find more of both.
bool says_all(const KeyRule& rule);

/// Whether a single row sees just the keys of its range.
bool gives_limits(const KeyRule& rule);

/// Whether it says anything at all.
bool says_nothing(const KeyRule& rule);

/// The range for the rows of environment.q; environment.kv is not looked at. Keys may be negative or beyond
/// the last.
ranges::KeyRange key_range(const KeyRule& rule, const RangeEnvironment& environment);

}  // namespace tilewright
#pragma GCC visibility pop
