// From generated source to a compiled kernel, through the cache.
#pragma once

#include <memory>

#include "runtime/cache.h"
#include "runtime/compiler.h"
#include "runtime/tuning_records.h"

namespace tilewright {

/// The entry from a bundle, from the cache, or by NVRTC. Without a compiler on the machine, or with compiling
/// switched off, any compiler's entry for the source will do; if there is none either, throws
/// Error(environment) that says why nothing is compiled and names target, schedule, spec and bundles. Throws
/// CompileError with log, command and the path of the source, which is kept.
std::shared_ptr<const CacheEntry> build_kernel(KernelCache& cache, const AttentionSpec& spec,
                                               const Schedule& schedule, const Source& source,
                                               const Target& target, bool as_ptx,
                                               CacheResult* from = nullptr);

/// The same with a compiler of choice; null: there is none, for the reason `why`.
std::shared_ptr<const CacheEntry> build_kernel_with(Compiler* compiler, const std::string& why,
                                                    KernelCache& cache, const AttentionSpec& spec,
                                                    const Schedule& schedule, const Source& source,
                                                    const Target& target, bool as_ptx,
                                                    CacheResult* from = nullptr);

/// What the options of a runtime say about its cache.
KernelCache::Options cache_options(const RuntimeOptions& options);

/// The tuning records that the options leave usable. Files that cannot be read are warned of.
TuningRecords usable_records(const RuntimeOptions& options);

/// Throws Error(spec) that lists every reason, if a spec set by code breaks a rule.
void require_valid(const AttentionSpec& spec);

}  // namespace tilewright
