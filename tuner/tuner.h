// Tunes one spec on one GPU: candidates, their compiles, the gate, the clock, the choice.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codegen/cost_model.h"
#include "codegen/schedule_space.h"
#include "codegen/shape_bucket.h"
#include "runtime/include/tilewright/tilewright.hpp"
#include "tuner/bench.h"
#include "tuner/selection.h"

namespace tilewright {

struct TuneOptions {
  std::vector<const ShapeBucket*> buckets;  // empty: all
  int candidates = 40;                      // of each bucket at most, beside the default
  bool exhaustive = false;                  // afterwards, every legal schedule is timed to the end
  double seconds = 1e9;                     // for everything; what is known by then decides
  uint64_t seed = 1;
};

/// How far a spec is.
struct TuneProgress {
  std::string stage;  // "compiling", "checking", "timing long"
  int done = 0, total = 0;
  double gain = 0;  // of the best so far over the default, in the buckets that are finished
};

/// What became of one compile: a report, or the reason why there is none.
struct CompileOutcome {
  CompileReport report;
  std::string failure;
};

/// What the tuner needs of the world. Tests have their own.
struct TuneParts {
  /// Compiles the spec's kernels with all of these schedules; `done` after each.
  std::function<std::vector<CompileOutcome>(const std::vector<Schedule>&,
                                            const std::function<void(size_t)>& done)>
      compile;
  /// Makes the bench, in a child process, for these schedules.
  std::function<BenchFactory(const std::vector<Schedule>&)> bench;
  std::function<void(const TuneProgress&)> progress;
};

struct TunedCandidate {
  Schedule schedule;
  CompileReport report;
  std::string refused;  // why it was not timed: its compile, a spill, a wrong result
};

struct TunedBucket {
  const ShapeBucket* bucket = nullptr;
  LaunchShape shape;
  std::vector<size_t> candidates;  // places in TunedSpec::candidates; the first is the default
  std::vector<double> predicted;   // microseconds by the model, in the same order
  size_t searched = 0;             // how many of them the search looks at; the rest are for `exhaustive`
  Selection selection;             // of numbers in `candidates`
  double correlation = 0;          // of predicted and measured ranks
  int timed = 0;
  /// With `exhaustive`: every legal schedule timed to the end, numbers as above. `selection` is then what the
  /// search found without it, and this is how much slower its winner is than the fastest of all.
  std::optional<Selection> sweep;
  double behind_best = 0;

  size_t winner() const { return candidates.at(static_cast<size_t>(selection.winner)); }
};

struct TunedSpec {
  ScheduleSpace space;
  std::vector<TunedCandidate> candidates;
  std::vector<TunedBucket> buckets;
  double compile_seconds = 0, check_seconds = 0, timing_seconds = 0;
};

/// What candidates a bucket gets: its default first, then the default's neighbours (one axis, one step) and
/// the fastest by the model.
std::vector<Schedule> bucket_candidates(const AttentionSpec& spec, const Target& target,
                                        const GpuFigures& gpu, const ShapeBucket& bucket,
                                        const ScheduleSpace& space, const TuneOptions& options);

/// Throws Error(spec) if the spec has `blocks` of its own or no kernel serves it, Error(usage) if the tuner
/// has no inputs for it, Error(device) if nothing can be timed.
TunedSpec tune(const AttentionSpec& spec, const Target& target, const GpuFigures& gpu, const TuneParts& parts,
               const TuneOptions& options = {});

/// Throws as tune does.
void require_tunable(const AttentionSpec& spec, const Target& target);

}  // namespace tilewright
