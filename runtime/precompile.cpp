#include "runtime/precompile.h"

#include "codegen/error.h"
#include "runtime/build.h"
#include "runtime/worker_processes.h"

namespace tilewright {
namespace {

Source source_of(const PrecompileJob& job) {
  return emit(job.spec, job.schedule, *job.target, Backend::device);
}

KernelCache::Options without_bundles(const RuntimeOptions& options) {
  KernelCache::Options cache = cache_options(options);
  cache.bundles.clear();
  cache.compiling = true;
  return cache;
}

// The largest kernels take about two seconds.
constexpr double seconds_a_compile = 120;

// An answer is a letter and the rest: 'c' or 'd' and the entry, compiled or from disk; or 'f', the kind of
// the failure as a letter, and its text.
std::string answer_of(const PrecompileJob& job, KernelCache& cache) {
  try {
    CacheResult from;
    const auto entry =
        build_kernel(cache, job.spec, job.schedule, source_of(job), *job.target, job.as_ptx, &from);
    return (from == CacheResult::compiled ? "c" : "d") + encode_entry(*entry);
  } catch (const Error& error) {
    return std::string("f") + static_cast<char>('a' + static_cast<int>(error.kind())) + error.what();
  }
}

PrecompileResult result_of(const WorkResult& work) {
  PrecompileResult result;
  if (!work.failure.empty()) {
    result.failure = work.failure;
  } else if (work.answer[0] == 'f') {
    result.kind = static_cast<ErrorKind>(work.answer[1] - 'a');
    result.failure = work.answer.substr(2);
  } else {
    result.from = work.answer[0] == 'c' ? CacheResult::compiled : CacheResult::disk;
    result.entry = decode_entry(std::string_view(work.answer).substr(1));
  }
  return result;
}

std::vector<PrecompileJob> jobs_of(const AttentionSpec& spec, const std::string& title, const Target& target,
                                   const std::vector<Schedule>& schedules) {
  AttentionSpec nameless = spec;
  nameless.name.clear();
  std::vector<PrecompileJob> jobs;
  for (const Schedule& schedule : schedules) jobs.push_back({title, nameless, &target, schedule});
  return jobs;
}

}  // namespace

std::vector<PrecompileJob> precompile_jobs(const AttentionSpec& spec, const std::string& title,
                                           const Target& target) {
  static const TuningRecords records = usable_records({});
  return jobs_of(spec, title, target, possible_schedules(spec, target, records));
}

std::vector<PrecompileJob> precompile_ptx_jobs(const AttentionSpec& spec, const std::string& title) {
  // A compute capability beyond any in the table.
  const Target& target = *target_for_device(99, 0).target;
  // Such a GPU has no records.
  std::vector<PrecompileJob> jobs = jobs_of(spec, title, target, bucket_schedules(spec, target).distinct());
  for (PrecompileJob& job : jobs) job.as_ptx = true;
  return jobs;
}

std::vector<PrecompileResult> precompile(const std::vector<PrecompileJob>& jobs,
                                         const RuntimeOptions& options, size_t processes,
                                         const std::function<void(size_t, const PrecompileResult&)>& done) {
  std::vector<PrecompileResult> results(jobs.size());
  std::optional<KernelCache> cache;  // in a child: opened by its first job
  share_out(
      jobs.size(), processes, seconds_a_compile,
      [&](size_t index) {
        if (!cache) cache.emplace(without_bundles(options));
        return answer_of(jobs[index], *cache);
      },
      [&](size_t index, const WorkResult& work) {
        results[index] = result_of(work);
        if (done) done(index, results[index]);
      });
  return results;
}

std::string source_key(const PrecompileJob& job) {
  return kernel_source_key(source_of(job), *job.target, job.as_ptx);
}

}  // namespace tilewright
