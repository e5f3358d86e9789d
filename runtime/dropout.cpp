#include "runtime/dropout.h"

#include <algorithm>
#include <string>

#include "codegen/error.h"
#include "codegen/spec_rules.h"

namespace tilewright {
namespace {

using u32 = unsigned int;
using u64 = unsigned long long;

#define __device__
#define __forceinline__ inline
#include "templates/dropout_numbers.cuh"
#undef __device__
#undef __forceinline__

/// The finalizer of SplitMix64: one to one, every bit of the result depends on all.
uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

void check_rate(const Dropout& dropout) {
  if (!(dropout.rate >= 0 && dropout.rate < 1))
    throw Error(ErrorKind::usage,
                "dropout: rate is " + shortest_decimal(dropout.rate) + ", expected at least 0 and below 1");
}

}  // namespace

void check_dropout(const AttentionSpec& spec, const std::optional<Dropout>& dropout) {
  if (spec.dropout && !dropout)
    throw Error(ErrorKind::usage, "dropout (rate, seed, offset) is missing: the spec says `dropout: true`");
  if (!spec.dropout && dropout)
    throw Error(ErrorKind::usage, "dropout was given, but the spec does not say `dropout: true`");
  if (dropout) check_rate(*dropout);
}

// Rounds' keys are made here: a kernel reads them as constants, where adding them up takes registers and a
// third of the instructions. One 64-bit key holds seed and offset; of one seed every offset has its own.
DropoutParameters dropout_parameters(const std::optional<Dropout>& dropout) {
  DropoutParameters parameters{};
  if (!dropout) return parameters;
  const uint64_t key = mix(mix(dropout->seed) + dropout->offset);
  for (u32 round = 0; round < 10; ++round) {
    parameters.keys[2 * round] = static_cast<u32>(key) + round * 0x9e3779b9u;
    parameters.keys[2 * round + 1] = static_cast<u32>(key >> 32) + round * 0xbb67ae85u;
  }
  parameters.threshold = static_cast<u32>(dropout->rate * 4294967296.0);
  parameters.factor = static_cast<float>(1 / (1 - dropout->rate));
  return parameters;
}

bool is_kept(const DropoutParameters& dropout, int64_t head, int64_t query, int64_t key) {
  u32 words[4];
  draw_words(words, dropout.keys, static_cast<int>(head), static_cast<int>(query), static_cast<int>(key),
             static_cast<int>(query % 8 / 2), static_cast<int>(key % 8 / 2));
  return !is_dropped(words[query % 2 * 2 + key % 2], static_cast<int>(query / 8 % 2 * 2 + key / 8 % 2),
                     dropout.threshold);
}

std::vector<uint8_t> dropout_mask(const Dropout& dropout, const DropoutRange& range) {
  check_rate(dropout);
  const auto check = [](const char* name, int64_t first, int64_t count) {
    if (first < 0 || count < 0 || first > INT32_MAX || count > INT32_MAX - first)
      throw Error(ErrorKind::usage, std::string("dropout_mask: ") + name + " " + std::to_string(first) +
                                        " and " + std::to_string(count) + " more; expected 0 to 2147483647");
  };
  check("head", range.head, range.heads);
  check("query", range.query, range.queries);
  check("key", range.key, range.keys);
  if (range.heads > 0 && range.queries > 0 && range.keys > (int64_t{1} << 40) / range.heads / range.queries)
    throw Error(ErrorKind::usage, "dropout_mask: more than 2^40 places");
  const DropoutParameters parameters = dropout_parameters(dropout);
  std::vector<uint8_t> keep;
  keep.reserve(range.heads * range.queries * range.keys);
  for (int64_t h = range.head; h < range.head + range.heads; ++h)
    for (int64_t q = range.query; q < range.query + range.queries; ++q)
      for (int64_t k = range.key; k < range.key + range.keys; ++k)
        keep.push_back(is_kept(parameters, h, q, k));
  return keep;
}

}  // namespace tilewright
