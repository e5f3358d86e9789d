// Options that several commands share: which target, which shape, which cache.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/launch_plan.h"
#include "codegen/spec.h"
#include "codegen/target.h"
#include "runtime/tuning_records.h"
#include "tilewright/tilewright.hpp"

namespace tilewright::cli {

/// `--target`'s value, else the target of this machine's GPU, else sm_80.
const Target& chosen_target(const std::string& name);

/// The machine's GPU, if it is what the target is made for.
std::optional<GpuModel> gpu_of_target(const Target& target);

/// "sm_80,sm_90a" as targets; `all` is every one. Throws Error(usage) for an unknown name.
std::vector<const Target*> target_list(const std::string& names);

/// Batch, heads and lengths; what is not given follows from the spec.
struct ShapeOptions {
  int64_t batch = 1;
  int64_t heads = 0;  // 0: one KV head's
  int64_t seqlen_q = 0;
  int64_t seqlen_kv = -1;  // below 0: as seqlen_q

  /// `default_seqlen` is used without --seqlen-q.
  void add_to(CLI::App& app, int64_t default_seqlen);
  /// Throws Error(usage) if the heads are not divisible by the spec's ratio.
  LaunchShape shape(const AttentionSpec& spec) const;
};

/// "batch 1, 32 query heads over 8 KV heads, 256 queries, 256 keys"
std::string shape_sentence(const AttentionSpec& spec, const LaunchShape& shape);

/// The spec's name, else its file's.
std::string title_of(const AttentionSpec& spec, const std::string& file);

/// "memory", "bundle", "disk" or "compiled".
std::string_view name_of(CacheResult from);

}  // namespace tilewright::cli
