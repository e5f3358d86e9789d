// What `tilewright run` gives to a spec's expressions: from options, or made up.
#pragma once

#include <CLI/CLI.hpp>
#include <deque>
#include <string>
#include <vector>

#include "cli/tensors.h"
#include "codegen/launch_plan.h"
#include "codegen/tile_map.h"

namespace tilewright::cli {

struct ExpressionOptions {
  std::vector<std::string> scalars, tensors;  // "NAME=VALUE", "NAME=FILE"
  /// `without`: what becomes of scalars and tensors that are not given.
  void add_to(CLI::App& app, const std::string& scalars_without, const std::string& tensors_without);
};

/// The values of "NAME=VALUE" texts. Throws Error(usage) for a name that the spec does not declare, or no
/// number.
std::map<std::string, double> scalar_values(const AttentionSpec& spec, const std::vector<std::string>& texts);

/// The scalars and tensors that options give, for the analysis of a mask; others are not known. Throws
/// Error(usage) for a name that the spec does not declare, and for a tensor of another rank, size or range.
MaskInputs known_inputs(const AttentionSpec& spec, const LaunchShape& shape,
                        const ExpressionOptions& options);

/// Scalars and tensors for a launch of a shape. A tensor without a file is drawn from a normal distribution
/// (floats), counts four groups along its last dimension (int32) or is true (bool). Throws Error(usage) for a
/// name that the spec does not declare and a scalar without a value.
class ExpressionInputs {
 public:
  ExpressionInputs(Runtime& runtime, const AttentionSpec& spec, const LaunchShape& shape,
                   const ExpressionOptions& options, uint64_t seed);
  void give(ForwardArguments& on_device, ForwardArguments& on_host);

 private:
  std::map<std::string, double> scalars_;
  std::vector<std::string> names_;
  std::deque<HostTensor> host_;
  std::deque<GuardedTensor> device_;
};

}  // namespace tilewright::cli
