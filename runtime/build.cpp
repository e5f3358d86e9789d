#include "runtime/build.h"

#include "codegen/error.h"
#include "runtime/environment.h"
#include "runtime/warning.h"

namespace tilewright {
namespace {

CacheEntry compile_now(Compiler& compiler, const KernelCache& cache, const CacheKey& key,
                       const AttentionSpec& spec, const Schedule& schedule, const Source& source,
                       const Target& target, bool as_ptx) {
  try {
    return {.key = key,
            .spec = canonical_form(spec),
            .schedule = describe(schedule),
            .target = std::string(target.name),
            .kernel_name = source.kernel_name,
            .compiled = compiler.compile(source, target, as_ptx)};
  } catch (const CompileError& error) {
    if (!error.source_path().empty()) throw;
    const std::string path = cache.keep_failed(source).string();
    throw CompileError(std::string(error.what()) +
                           "\nsource: " + (path.empty() ? "could not be kept" : path) +
                           "\ncommand: " + error.command() + "\nlog:\n" + error.log(),
                       error.log(), error.command(), path);
  }
}

std::string missing_text(const std::string& why, const KernelCache& cache, const AttentionSpec& spec,
                         const Schedule& schedule, const Target& target) {
  std::string text =
      why + "; no kernel for " + std::string(target.name) + " (" + describe(schedule) + ") is in ";
  if (!cache.bundles().empty()) text += names_of(cache.bundles()) + " or ";
  text += cache.directory() ? "the cache " + cache.directory()->path().string() : "a cache";
  return text + ". The spec:\n" + canonical_form(spec);
}

}  // namespace

std::shared_ptr<const CacheEntry> build_kernel_with(Compiler* compiler, const std::string& why,
                                                    KernelCache& cache, const AttentionSpec& spec,
                                                    const Schedule& schedule, const Source& source,
                                                    const Target& target, bool as_ptx, CacheResult* from) {
  const CacheKey key = cache.key(source, target, as_ptx, compiler);
  auto make = [&] {
    if (!compiler) throw Error(ErrorKind::environment, missing_text(why, cache, spec, schedule, target));
    return compile_now(*compiler, cache, key, spec, schedule, source, target, as_ptx);
  };
  return cache.fetch(key, make, from);
}

std::shared_ptr<const CacheEntry> build_kernel(KernelCache& cache, const AttentionSpec& spec,
                                               const Schedule& schedule, const Source& source,
                                               const Target& target, bool as_ptx, CacheResult* from) {
  if (auto entry = cache.find_in_bundles(kernel_source_key(source, target, as_ptx))) {
    if (from) *from = CacheResult::bundle;
    return entry;
  }
  Compiler* compiler = nullptr;
  std::string why = "compiling is switched off (RuntimeOptions::compiling, " +
                    std::string(name_of(Variable::compiling)) + ")";
  try {
    if (cache.compiling()) compiler = &nvrtc_compiler();
  } catch (const Error& error) {
    why = error.what();
  }
  return build_kernel_with(compiler, why, cache, spec, schedule, source, target, as_ptx, from);
}

KernelCache::Options cache_options(const RuntimeOptions& options) {
  KernelCache::Options cache = {.directory = options.cache_directory,
                                .disk = options.disk_cache,
                                .lock_seconds = environment_number(Variable::lock_seconds).value_or(60),
                                .bundles = options.bundles,
                                .compiling = options.compiling};
  for (const auto& file : path_list(environment(Variable::bundles).value_or("")))
    cache.bundles.push_back(file);
  if (environment(Variable::compiling) == "0") cache.compiling = false;
  return cache;
}

TuningRecords usable_records(const RuntimeOptions& options) {
  if (!options.tuning_records) return {};
  TuningRecords records(record_directories(options.records_directory));
  for (const std::string& problem : records.problems()) warn_once("tuning records are left out: " + problem);
  return records;
}

void require_valid(const AttentionSpec& spec) {
  auto problems = validate(spec);
  if (problems.empty()) return;
  std::string message = "the spec is not valid:";
  for (const auto& problem : problems) message += "\n  " + problem;
  throw Error(ErrorKind::spec, message);
}

CompiledKernel compile(const AttentionSpec& spec, const Schedule& schedule, const Target& target,
                       const RuntimeOptions& options, bool as_ptx) {
  require_valid(spec);
  CompiledKernel kernel;
  kernel.schedule = schedule;
  kernel.source = emit(spec, schedule, target, Backend::device);
  KernelCache cache(cache_options(options));
  auto entry = build_kernel(cache, spec, schedule, kernel.source, target, as_ptx, &kernel.from);
  kernel.image = entry->compiled.image;
  kernel.report = entry->compiled.report;
  return kernel;
}

CompiledKernel compile(const AttentionSpec& spec, const Target& target, const RuntimeOptions& options,
                       bool as_ptx) {
  require_valid(spec);
  const Schedule schedule = usable_records(options).decide(spec, target, nullptr).schedule;
  return compile(spec, schedule, target, options, as_ptx);
}

}  // namespace tilewright
