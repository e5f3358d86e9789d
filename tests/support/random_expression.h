// Random expressions, and random data to evaluate them on, for property tests.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "codegen/expression.h"
#include "codegen/expression_evaluate.h"
#include "codegen/expression_ranges.h"

namespace tilewright {

/// Names that random expressions use: int and float scalars, tensors of every element type.
Declarations random_declarations();

class RandomExpressions {
 public:
  explicit RandomExpressions(uint64_t seed) : generator_(seed) {}

  /// Of at most `levels` levels; built as the parser builds.
  Expression mask(int levels) { return boolean(levels); }
  Expression score(int levels);
  bool with_score = false;  // scores may use `score`
  bool with_floats = true;  // masks may compare floats
  bool with_tensors = true;

  int64_t below(int64_t count) { return static_cast<int64_t>(generator_() % static_cast<uint64_t>(count)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  double real(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(generator_);
  }

 private:
  Expression boolean(int levels);
  Expression integer(int levels);
  Expression number(int levels);

  std::mt19937_64 generator_;
};

/// A launch's scalars and tensors, and lengths.
struct RandomData {
  RandomData(RandomExpressions& random, int64_t seqlen_q, int64_t seqlen_kv);
  int64_t seqlen_q, seqlen_kv, heads = 4, kv_heads = 2, batch = 2;
  std::map<std::string, Value> scalars;
  std::map<std::string, std::vector<Value>> tensors;  // row-major, of the extents of `extent`
  Declarations declarations = random_declarations();

  int64_t extent(const Dimension& dimension) const;
  Value look_up(const std::string& name, const std::vector<int64_t>& indices) const;
  /// The hull of all elements in reach of the indices.
  ValueRange look_up_range(const std::string& name, const std::vector<ranges::IntRange>& indices) const;

  Environment at(int64_t q, int64_t kv, int64_t head, int64_t in_batch, double score = 0) const;
  /// A tile, its last row and key included.
  RangeEnvironment tile(int64_t q0, int64_t q1, int64_t kv0, int64_t kv1, int64_t head,
                        int64_t in_batch) const;
};

}  // namespace tilewright
