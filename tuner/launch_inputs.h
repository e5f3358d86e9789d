// What a launch of a spec takes, made up: for the gate and the clock, and for lists of blocks that `run`
// draws.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// Why the tuner cannot make inputs for launches of a spec; empty: it can.
std::string no_inputs_because(const AttentionSpec& spec);

/// Bytes of one tensor, contiguous in the spec's layout.
struct InputTensor {
  std::string name;  // of the argument, or of one of the spec's `tensors`
  DataType type;
  std::vector<int64_t> shape;
  std::vector<unsigned char> bytes;
  bool declared = false;  // one of the spec's `tensors`, or its bias
  bool written = false;   // by the launch; else read
  bool added_to = false;  // by the launch, from zeros on

  int64_t elements() const;
};

/// Lists for a mask with blocks: about half of them, for every batch and head others.
struct BlockLists {
  std::vector<int32_t> rows, columns;  // [batch, heads, blocks of queries + 1], and their entries
  int64_t rows_of_head = 0;
};
BlockLists draw_block_lists(const Mask::Blocks& size, const LaunchShape& shape, uint64_t seed);

/// The extent of a declared tensor's dimension.
int64_t extent_of(const AttentionSpec& spec, const LaunchShape& shape, const Dimension& dimension);

/// Elements of Q, K, V and of gradients are standard normal; those of tensors of floats too. Integers that
/// belong to positions are the first position of their eighth of the sequence: right as a document's number
/// and as its start. Other integers, scalars too, are a quarter of the keys; scalars of floats are 1. Of
/// seven booleans six are true.
class LaunchInputs {
 public:
  struct Options {
    uint64_t seed = 1;
    bool outliers = false;  // some elements of Q and K are 20 times as large
    /// The forward pass is computed, so that a backward pass gets its very output and LSE; else they are of
    /// the right size.
    bool exact = false;
  };
  /// Layout packed: `shape.batch` sequences of uneven lengths with the shape's as their mean; of four or more
  /// one is empty. Large shapes repeat a block of drawn elements.
  LaunchInputs(const AttentionSpec& spec, const LaunchShape& shape, const Options& options);

  std::vector<InputTensor> tensors;

  /// `places[i]` is where tensors[i] is; none: in host memory, here.
  ForwardArguments forward(const std::vector<void*>& places = {});
  /// Without a workspace.
  BackwardArguments backward(const std::vector<void*>& places = {});

 private:
  InputTensor& add(std::string name, DataType type, std::vector<int64_t> shape, bool written = false);
  void add_normal(std::string name, DataType type, std::vector<int64_t> shape, bool outliers = false);
  void add_integers(std::string name, const std::vector<int32_t>& numbers, std::vector<int64_t> shape);
  void add_declared(const AttentionSpec& spec, const LaunchShape& shape);
  void add_forward_results(const AttentionSpec& spec, const LaunchShape& shape);

  std::map<std::string, double> scalars_;
  std::optional<double> softmax_scale_;
  std::optional<Dropout> dropout_;
  Options options_;
  uint64_t seed_;
};

}  // namespace tilewright
