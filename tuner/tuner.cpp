#include "tuner/tuner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>

#include "codegen/error.h"
#include "codegen/model_choice.h"
#include "codegen/timing_shape.h"
#include "tuner/bench_process.h"
#include "tuner/gate.h"

namespace tilewright {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Schedules that differ from `from` by one step of one axis.
std::vector<Schedule> neighbours(const Schedule& from, const ScheduleSpace& space) {
  std::vector<Schedule> list;
  const Pass pass = from.order >= 0 ? Pass::backward : Pass::forward;
  for (const ScheduleAxis& axis : schedule_axes(pass, from.family)) {
    // The axis's value in `from` is the one that changes nothing.
    for (size_t i = 0; i < axis.values.size(); ++i) {
      Schedule same = from;
      axis.set(same, axis.values[i]);
      if (same != from) continue;
      for (size_t j : {i - 1, i + 1}) {
        if (j >= axis.values.size()) continue;
        Schedule near = from;
        axis.set(near, axis.values[j]);
        if (near.consumers() < 2) near.ping_pong = false;  // one consumer has nobody to take turns with
        if (std::find(space.legal.begin(), space.legal.end(), near) != space.legal.end())
          list.push_back(near);
      }
    }
  }
  return list;
}

void add_once(std::vector<Schedule>& list, const Schedule& schedule) {
  if (std::find(list.begin(), list.end(), schedule) == list.end()) list.push_back(schedule);
}

std::tuple<Family, int, int> tile_of(const Schedule& schedule) {
  return {schedule.family, schedule.block_m, schedule.block_n};
}

// A compile that works, but not as it was meant to.
std::string defect_of(const CompileReport& report) {
  if (report.spill_bytes > 0) return "spills " + std::to_string(report.spill_bytes) + " bytes";
  for (const std::string& note : report.notes)
    if (note.find("C75") != std::string::npos) return note;
  return {};
}

/// Rounds of one bucket: its candidates have their own numbers.
class BucketStopwatch final : public Stopwatch {
 public:
  BucketStopwatch(BenchProcess& bench, const std::vector<size_t>& numbers)
      : bench_(bench), numbers_(numbers), begin_(Clock::now()) {}
  std::vector<Sample> round(const std::vector<int>& order) override {
    std::vector<int> global;
    for (int candidate : order) global.push_back(static_cast<int>(numbers_[static_cast<size_t>(candidate)]));
    return bench_.round(global);
  }
  double seconds() override { return seconds_since(begin_); }

 private:
  BenchProcess& bench_;
  const std::vector<size_t>& numbers_;
  Clock::time_point begin_;
};

class Tuning {
 public:
  Tuning(const AttentionSpec& spec, const Target& target, const GpuFigures& gpu, const TuneParts& parts,
         const TuneOptions& options)
      : spec_(spec), target_(target), gpu_(gpu), parts_(parts), options_(options) {}

  TunedSpec run() {
    require_tunable(spec_, target_);
    result_.space = schedule_space(spec_, target_);
    choose_candidates();
    compile();
    check_and_time();
    return std::move(result_);
  }

 private:
  void report(const std::string& stage, size_t done, size_t total) {
    if (parts_.progress)
      parts_.progress({stage, static_cast<int>(done), static_cast<int>(total), best_gain_});
  }

  void choose_candidates() {
    std::vector<const ShapeBucket*> buckets = options_.buckets;
    if (buckets.empty())
      for (const ShapeBucket& bucket : shape_buckets()) buckets.push_back(&bucket);
    for (const ShapeBucket* bucket : buckets) {
      TunedBucket tuned{.bucket = bucket, .shape = timing_shape(spec_, *bucket)};
      // A ratio of several hundred heads leaves no launch of few tiles.
      if (bucket_of(tuned.shape).name != bucket->name) continue;
      const std::vector<Schedule> schedules =
          bucket_candidates(spec_, target_, gpu_, *bucket, result_.space, options_);
      tuned.searched = std::min(schedules.size(), static_cast<size_t>(options_.candidates) + 1);
      for (const Schedule& schedule : schedules) {
        tuned.candidates.push_back(place_of(schedule));
        tuned.predicted.push_back(estimate_cost(spec_, schedule, target_, gpu_, tuned.shape).microseconds);
      }
      result_.buckets.push_back(std::move(tuned));
    }
  }

  size_t place_of(const Schedule& schedule) {
    auto& list = result_.candidates;
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i].schedule == schedule) return i;
    list.push_back({.schedule = schedule});
    return list.size() - 1;
  }

  bool is_default(size_t place) const {
    return std::any_of(result_.buckets.begin(), result_.buckets.end(),
                       [&](const TunedBucket& bucket) { return bucket.candidates.front() == place; });
  }

  void compile() {
    const auto begin = Clock::now();
    std::vector<Schedule> schedules;
    for (const TunedCandidate& candidate : result_.candidates) schedules.push_back(candidate.schedule);
    size_t done = 0;
    report("compiling", 0, schedules.size());
    const auto outcomes =
        parts_.compile(schedules, [&](size_t) { report("compiling", ++done, schedules.size()); });
    for (size_t i = 0; i < outcomes.size(); ++i) {
      TunedCandidate& candidate = result_.candidates[i];
      candidate.report = outcomes[i].report;
      candidate.refused = outcomes[i].failure;
      // The default is what runs without tuning: it competes as it is.
      if (candidate.refused.empty() && !is_default(i)) candidate.refused = defect_of(candidate.report);
    }
    result_.compile_seconds = seconds_since(begin);
  }

  void check_and_time() {
    std::vector<Schedule> schedules;
    for (const TunedCandidate& candidate : result_.candidates) schedules.push_back(candidate.schedule);
    auto begin = Clock::now();
    BenchProcess bench(parts_.bench(schedules));
    size_t done = 0;
    for (TunedCandidate& candidate : result_.candidates) {
      report("checking", done, schedules.size());
      if (candidate.refused.empty()) candidate.refused = bench.refuse(static_cast<int>(done));
      ++done;
    }
    result_.check_seconds = seconds_since(begin);
    begin = Clock::now();
    for (size_t i = 0; i < result_.buckets.size(); ++i) {
      const double left = options_.seconds - seconds_since(begin_);
      time(bench, result_.buckets[i], left / static_cast<double>(result_.buckets.size() - i));
    }
    result_.timing_seconds = seconds_since(begin);
  }

  void time(BenchProcess& bench, TunedBucket& bucket, double seconds) {
    bench.use_shape(bucket.shape);
    bucket.selection = select(bench, bucket, bucket.searched, false, seconds);
    if (bucket.selection.winner >= 0) best_gain_ = std::max(best_gain_, bucket.selection.gain);
    if (options_.exhaustive) {
      bucket.sweep = select(bench, bucket, bucket.candidates.size(), true, 1e9);
      if (bucket.selection.winner >= 0)
        bucket.behind_best = bucket.sweep->candidates[static_cast<size_t>(bucket.selection.winner)].slower;
    }
    const Selection& measured = bucket.sweep ? *bucket.sweep : bucket.selection;
    std::vector<double> predicted, times;
    for (size_t i = 0; i < bucket.candidates.size(); ++i) {
      if (measured.candidates[i].median == 0) continue;
      predicted.push_back(bucket.predicted[i]);
      times.push_back(measured.candidates[i].slower);
    }
    bucket.timed = static_cast<int>(times.size());
    bucket.correlation = rank_correlation(predicted, times);
  }

  /// Among the first `count` candidates of the bucket, as far as they are right. Numbers in the result are
  /// those of the bucket's candidates.
  Selection select(BenchProcess& bench, const TunedBucket& bucket, size_t count, bool exhaustive,
                   double seconds) {
    const std::string stage = (exhaustive ? "sweeping " : "timing ") + std::string(bucket.bucket->name);
    std::vector<size_t> numbers, places;
    std::vector<Footprint> footprints;
    for (size_t i = 0; i < count; ++i) {
      const TunedCandidate& candidate = result_.candidates[bucket.candidates[i]];
      if (!candidate.refused.empty()) continue;
      numbers.push_back(bucket.candidates[i]);
      places.push_back(i);
      footprints.push_back(
          {resources(spec_, candidate.schedule, target_).shared_memory, candidate.schedule.threads()});
    }
    Selection found;
    if (numbers.empty()) {
      found.note = "no candidate is right";
    } else {
      SelectionOptions selection;
      selection.seed = options_.seed;
      selection.exhaustive = exhaustive;
      selection.deadline = seconds;
      const size_t total = numbers.size();
      selection.progress = [&](const std::string&, int left) {
        report(stage, total - static_cast<size_t>(left), total);
      };
      BucketStopwatch stopwatch(bench, numbers);
      found = select_fastest(footprints, stopwatch, selection);
      if (places.front() != 0) {
        found.note = "the default is not right: " + result_.candidates[bucket.candidates[0]].refused;
        found.gain = 0;
      }
    }
    std::vector<CandidateFigures> figures(bucket.candidates.size());
    for (size_t i = 0; i < places.size(); ++i) figures[places[i]] = std::move(found.candidates[i]);
    found.candidates = std::move(figures);
    if (found.winner >= 0) found.winner = static_cast<int>(places[static_cast<size_t>(found.winner)]);
    return found;
  }

  const AttentionSpec& spec_;
  const Target& target_;
  const GpuFigures& gpu_;
  const TuneParts& parts_;
  const TuneOptions& options_;
  const Clock::time_point begin_ = Clock::now();
  double best_gain_ = 0;
  TunedSpec result_;
};

}  // namespace

std::vector<Schedule> bucket_candidates(const AttentionSpec& spec, const Target& target,
                                        const GpuFigures& gpu, const ShapeBucket& bucket,
                                        const ScheduleSpace& space, const TuneOptions& options) {
  std::vector<Schedule> list = {untuned_schedule(spec, target, bucket)};
  const size_t most = options.exhaustive ? SIZE_MAX : static_cast<size_t>(options.candidates) + 1;
  for (const Schedule& schedule : neighbours(list.front(), space)) add_once(list, schedule);
  const auto ranked = rank_schedules(spec, space.legal, target, gpu, timing_shape(spec, bucket));
  // First two of each pair of tile sizes, which is where the model can be wrong; then whatever it likes best.
  std::map<std::tuple<Family, int, int>, int> of_tile;
  for (const Schedule& schedule : list) ++of_tile[tile_of(schedule)];
  for (const RankedSchedule& one : ranked) {
    if (list.size() >= most) break;
    if (++of_tile[tile_of(one.schedule)] <= 2) add_once(list, one.schedule);
  }
  for (const RankedSchedule& one : ranked) {
    if (list.size() >= most) break;
    add_once(list, one.schedule);
  }
  return list;
}

void require_tunable(const AttentionSpec& spec, const Target& target) {
  if (spec.blocks != BlockRequest{})
    throw Error(ErrorKind::spec,
                "the spec has `blocks` of its own, and nothing is left to tune; leave them out");
  if (const std::string why = no_inputs_because(spec); !why.empty()) throw Error(ErrorKind::usage, why);
  const std::vector<std::string> reasons = unsupported_because(spec, target);
  if (reasons.empty()) return;
  std::string text = "no kernel for this spec on " + std::string(target.name) + ":";
  for (const std::string& reason : reasons) text += " " + reason + ";";
  text.pop_back();
  throw Error(ErrorKind::spec, text);
}

TunedSpec tune(const AttentionSpec& spec, const Target& target, const GpuFigures& gpu, const TuneParts& parts,
               const TuneOptions& options) {
  return Tuning(spec, target, gpu, parts, options).run();
}

}  // namespace tilewright
