// The options of `tilewright run` for specs with `dropout: true`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "tilewright/tilewright.hpp"

namespace tilewright::cli {

struct DropoutOptions {
  std::optional<double> rate;
  uint64_t seed = 1, offset = 0;

  void add_to(CLI::App& app) {
    app.add_option("--dropout-rate", rate, "For specs with `dropout: true` (default 0.1)");
    app.add_option("--dropout-seed", seed, "Of the mask (default 1)")->check(CLI::NonNegativeNumber);
    app.add_option("--dropout-offset", offset, "Of the mask (default 0)")->check(CLI::NonNegativeNumber);
  }
  /// A rate that the spec does not ask for is refused by the launch, with the reason.
  std::optional<Dropout> of(const AttentionSpec& spec) const {
    if (!spec.dropout && !rate) return std::nullopt;
    return Dropout{.rate = rate.value_or(0.1), .seed = seed, .offset = offset};
  }
};

}  // namespace tilewright::cli
