// Layout packed: the sequences of a batch lie one behind the other in tensors of rank 3.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// Throws Error(usage) unless the arrays that say where sequences begin fit the spec: all of them with layout
/// packed, none without. What is in them, on the device, is not looked at: kernels stay inside of the tensors
/// whatever they hold.
void check_sequence_arrays(const AttentionSpec& spec, const ForwardArguments& arguments);

/// What an array of int32 holds; null if it is not given.
inline const int* int32_numbers(const std::optional<TensorView>& array) {
  return array ? static_cast<const int*>(array->data) : nullptr;
}

/// The same tensors with a batch of one in front: [1, total, heads, head_dim], and LSE [1, heads, total].
/// `arguments` have the ranks of layout packed.
ForwardArguments with_batch_of_one(const ForwardArguments& arguments);
BackwardArguments with_batch_of_one(const BackwardArguments& arguments);

/// Sequences of the batch; of layout packed alone.
int64_t sequence_count(const ForwardArguments& arguments);

/// Rows of one sequence in q and out, and in k and v.
struct PackedSequence {
  int64_t first_query, queries, first_key, keys;
};
/// As kernels understand the arrays, which must be host memory here: clamped to the tensors.
std::vector<PackedSequence> packed_sequences(const ForwardArguments& arguments);

/// One sequence as a launch of its own, in layout bshd: `batch_of_one` from with_batch_of_one.
ForwardArguments one_sequence(const AttentionSpec& spec, const ForwardArguments& batch_of_one,
                              const PackedSequence& sequence);

/// The inputs of a backward launch for one sequence, in host memory: its rows of LSE, which have gaps, are
/// copies.
struct OneBackward {
  std::vector<float> lse, d_lse;
  BackwardArguments arguments;
};
OneBackward one_sequence(const AttentionSpec& spec, const BackwardArguments& batch_of_one,
                         const PackedSequence& sequence);

}  // namespace tilewright
