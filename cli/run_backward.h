// tilewright run, for specs with `pass: backward`: both passes once, the gradients checked.
#pragma once

#include <cstdint>
#include <optional>

#include "cli/choices.h"
#include "cli/expression_inputs.h"
#include "tilewright/tilewright.hpp"

namespace tilewright::cli {

struct BackwardRun {
  AttentionSpec spec;
  std::string file;
  LaunchShape shape;
  uint64_t seed = 1;  // of the random inputs
  std::optional<double> softmax_scale;
  ExpressionOptions expressions;
  std::optional<Dropout> dropout;
  bool check = true;
  bool json = false;
};

/// Prints what it finds. Returns the exit code.
int run_backward(const BackwardRun& run, Runtime& runtime);

}  // namespace tilewright::cli
