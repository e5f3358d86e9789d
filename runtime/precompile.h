// Compiles many specs for many targets, side by side, into the entries of a bundle.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/cache_entry.h"
#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// One kernel of a bundle.
struct PrecompileJob {
  std::string title;  // of the spec, for people
  AttentionSpec spec;
  const Target* target;
  Schedule schedule;
  bool as_ptx = false;
};

/// Every kernel that a runtime may ask for, for one spec on one target: a job for each variant. Throws
/// Error(spec) if no kernel serves it.
std::vector<PrecompileJob> precompile_jobs(const AttentionSpec& spec, const std::string& title,
                                           const Target& target);

/// What GPUs load that are newer than the target table, as PTX.
std::vector<PrecompileJob> precompile_ptx_jobs(const AttentionSpec& spec, const std::string& title);

struct PrecompileResult {
  CacheEntry entry;
  CacheResult from = CacheResult::compiled;
  std::string failure;  // empty: there is an entry
  ErrorKind kind = ErrorKind::internal;
};

/// In `processes` child processes, through the cache of `options` (not its bundles), so that what was
/// compiled before an interruption is not compiled again. A compile that crashes, hangs or fails costs its own
/// result alone. `done` is called with the index of each job as it
/// finishes. The caller must have one thread.
std::vector<PrecompileResult> precompile(
    const std::vector<PrecompileJob>& jobs, const RuntimeOptions& options, size_t processes,
    const std::function<void(size_t, const PrecompileResult&)>& done = {});

/// CacheKey::source of a job's kernel: what a bundle is asked for.
std::string source_key(const PrecompileJob& job);

}  // namespace tilewright
