#include "tuner/selection.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace tilewright {
namespace {

constexpr double missing = std::numeric_limits<double>::quiet_NaN();
// Standard error of a median over that of a mean, and standard deviation over MAD, of a normal distribution.
constexpr double median_error = 1.2533, deviation_scale = 1.4826;
// Standard errors: what leaves a candidate behind, and what a decision must be sure of.
constexpr double behind = 3, sure = 3.5;

/// Rounds of a stage: logarithms of the samples by round and candidate.
class Rounds {
 public:
  explicit Rounds(size_t candidates) : candidates_(candidates) {}

  void add(const std::vector<int>& order, const std::vector<Sample>& samples) {
    std::vector<double> row(candidates_, missing);
    for (size_t i = 0; i < order.size(); ++i)
      if (samples[i].failure.empty() && !samples[i].throttled && samples[i].microseconds > 0)
        row[order[i]] = std::log(samples[i].microseconds);
    rows_.push_back(std::move(row));
  }
  size_t count() const { return rows_.size(); }

  std::vector<double> of(int candidate) const {
    std::vector<double> list;
    for (const auto& row : rows_)
      if (!std::isnan(row[candidate])) list.push_back(std::exp(row[candidate]));
    return list;
  }

  /// What each candidate adds to a round's level, by median polish; NaN without samples.
  std::vector<double> effects() const {
    std::vector<double> effect(candidates_, 0), level(rows_.size(), 0);
    for (int pass = 0; pass < 6; ++pass) {
      for (size_t r = 0; r < rows_.size(); ++r) {
        std::vector<double> rest;
        for (size_t i = 0; i < candidates_; ++i)
          if (!std::isnan(rows_[r][i])) rest.push_back(rows_[r][i] - effect[i]);
        level[r] = rest.empty() ? 0 : median_of(rest);
      }
      for (size_t i = 0; i < candidates_; ++i) {
        std::vector<double> rest;
        for (size_t r = 0; r < rows_.size(); ++r)
          if (!std::isnan(rows_[r][i])) rest.push_back(rows_[r][i] - level[r]);
        if (!rest.empty()) effect[i] = median_of(rest);
      }
    }
    for (size_t i = 0; i < candidates_; ++i)
      if (of(static_cast<int>(i)).empty()) effect[i] = missing;
    return effect;
  }

  /// How much slower `candidate` is than `other`, from rounds that have both, and the standard error.
  struct Difference {
    double value = 0, error = std::numeric_limits<double>::infinity();
  };
  Difference difference(int candidate, int other) const {
    std::vector<double> list;
    for (const auto& row : rows_)
      if (!std::isnan(row[candidate]) && !std::isnan(row[other])) list.push_back(row[candidate] - row[other]);
    if (list.empty()) return {};
    // A few rounds may agree by chance: their spread is never taken for less than a third of everybody's.
    const double spread = std::max(deviation_of(list), pooled_deviation() / 3);
    return {median_of(list),
            median_error * deviation_scale * spread / std::sqrt(static_cast<double>(list.size()))};
  }

 private:
  double pooled_deviation() const {
    if (pooled_for_ == rows_.size()) return pooled_;
    std::vector<double> list;
    for (size_t i = 1; i < candidates_; ++i) {
      std::vector<double> pairs;
      for (const auto& row : rows_)
        if (!std::isnan(row[i]) && !std::isnan(row[0])) pairs.push_back(row[i] - row[0]);
      if (pairs.size() > 1) list.push_back(deviation_of(pairs));
    }
    pooled_for_ = rows_.size();
    return pooled_ = list.empty() ? 0 : median_of(list);
  }

  size_t candidates_;
  std::vector<std::vector<double>> rows_;
  mutable size_t pooled_for_ = 0;
  mutable double pooled_ = 0;
};

class Search {
 public:
  Search(const std::vector<Footprint>& footprints, Stopwatch& stopwatch, const SelectionOptions& options)
      : footprints_(footprints), stopwatch_(stopwatch), options_(options), random_(options.seed) {
    result_.candidates.resize(footprints.size());
    for (size_t i = 0; i < footprints.size(); ++i) alive_.push_back(static_cast<int>(i));
  }

  Selection run() {
    warm_up();
    halve();
    decide(final());
    return std::move(result_);
  }

 private:
  bool time_left() {
    if (stopwatch_.seconds() < options_.deadline) return true;
    result_.out_of_time = true;
    return false;
  }
  void report(const char* stage) {
    if (options_.progress) options_.progress(stage, static_cast<int>(alive_.size()));
  }
  bool failed(int candidate) const { return !result_.candidates[candidate].failure.empty(); }

  // Until two windows of the first candidate agree, within what noise leaves of them.
  void warm_up() {
    report("warming up");
    constexpr size_t window = 10;
    std::vector<double> last;
    for (int i = 0; i < 12 && !alive_.empty() && time_left(); ++i) {
      std::vector<double> now;
      while (now.size() < window && !alive_.empty()) {
        const int first = alive_.front();
        const Sample sample = stopwatch_.round({first}).at(0);
        if (!sample.failure.empty()) {
          drop(first, sample.failure);
          continue;
        }
        now.push_back(sample.microseconds);
      }
      if (now.size() < window) return;
      if (!last.empty()) {
        const double noise = deviation_of(now) / median_of(now);
        if (std::abs(median_of(now) / median_of(last) - 1) < std::max(0.005, noise)) return;
      }
      last = std::move(now);
    }
  }

  void drop(int candidate, const std::string& failure) {
    result_.candidates[candidate].failure = failure;
    std::erase(alive_, candidate);
  }

  /// Runs rounds; those in which most samples were throttled are run again, within reason.
  void run_rounds(Rounds& rounds, int count) {
    for (int done = 0, tried = 0; done < count && tried < 3 * count && !alive_.empty(); ++tried) {
      if (rounds.count() >= 3 && !time_left()) return;
      std::vector<int> order = alive_;
      std::shuffle(order.begin(), order.end(), random_);
      const std::vector<Sample> samples = stopwatch_.round(order);
      int throttled = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        throttled += samples[i].throttled;
        if (!samples[i].failure.empty())
          drop(order[i], samples[i].failure);
        else if (!samples[i].throttled)
          result_.candidates[order[i]].samples.push_back(samples[i].microseconds);
      }
      rounds.add(order, samples);
      ++result_.rounds;
      result_.throttled += throttled;
      if (2 * throttled <= static_cast<int>(order.size())) ++done;
    }
  }

  void note_figures(const Rounds& rounds, int best) {
    for (int candidate : alive_) {
      const std::vector<double> list = rounds.of(candidate);
      if (list.empty()) continue;
      CandidateFigures& figures = result_.candidates[candidate];
      figures.median = median_of(list);
      figures.deviation = deviation_of(list);
      figures.slower = std::expm1(rounds.difference(candidate, best).value);
    }
  }

  int fastest(const Rounds& rounds) const {
    const std::vector<double> effects = rounds.effects();
    int best = -1;
    for (int candidate : alive_)
      if (!std::isnan(effects[candidate]) && (best < 0 || effects[candidate] < effects[best]))
        best = candidate;
    return best;
  }

  void halve() {
    Rounds rounds(footprints_.size());
    int count = 5;
    while (static_cast<int>(alive_.size()) > options_.finalists + 1) {
      report("halving");
      run_rounds(rounds, count);
      const int best = fastest(rounds);
      if (best < 0) return;
      note_figures(rounds, best);
      if (options_.exhaustive) return;
      const size_t before = alive_.size();
      leave_behind(rounds, best);
      // Ties that more rounds would not part are cut in an order that another run would find too.
      if (alive_.size() == before && rounds.count() >= 20) cut_ties(rounds, best);
      if (!time_left()) {
        cut_ties(rounds, best);
        return;
      }
      count = std::min(2 * count, 20);
    }
  }

  void leave_behind(const Rounds& rounds, int best) {
    const std::vector<double> effects = rounds.effects();
    std::vector<int> order = alive_;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return effects[a] < effects[b]; });
    for (size_t place = 0; place < order.size(); ++place) {
      const int candidate = order[place];
      if (candidate == 0 || candidate == best) continue;
      const auto [slower, error] = rounds.difference(candidate, best);
      const bool in_lower_half = place >= (order.size() + 1) / 2;
      if (slower - behind * error > (in_lower_half ? 0 : options_.least_margin))
        std::erase(alive_, candidate);
    }
  }

  void cut_ties(const Rounds& rounds, int best) {
    std::vector<int> order;
    for (int candidate : alive_)
      if (candidate != 0) order.push_back(candidate);
    const auto tied = [&](int candidate) {
      return rounds.difference(candidate, best).value <= options_.least_margin;
    };
    const std::vector<double> effects = rounds.effects();
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      if (tied(a) != tied(b)) return tied(a);
      return tied(a) ? footprints_[a] < footprints_[b] : effects[a] < effects[b];
    });
    // The fastest stays in any case.
    if (best != 0) {
      std::erase(order, best);
      order.insert(order.begin(), best);
    }
    for (size_t i = static_cast<size_t>(options_.finalists); i < order.size(); ++i)
      std::erase(alive_, order[i]);
  }

  Rounds final() {
    Rounds rounds(footprints_.size());
    for (int candidate : alive_) result_.candidates[candidate].finalist = true;
    report("final");
    const double end = stopwatch_.seconds() + options_.final_seconds;
    run_rounds(rounds, options_.final_rounds);
    while (static_cast<int>(rounds.count()) < options_.most_final_rounds && alive_.size() > 1 &&
           stopwatch_.seconds() < end && time_left()) {
      const int best = fastest(rounds);
      if (best < 0) break;
      double widest = 0;
      for (int candidate : alive_)
        if (candidate != best) widest = std::max(widest, sure * rounds.difference(candidate, best).error);
      if (widest <= options_.least_margin / 2) break;
      const size_t before = rounds.count();
      run_rounds(rounds, std::max(5, static_cast<int>(before) / 4));
      if (rounds.count() == before) break;
    }
    return rounds;
  }

  void decide(const Rounds& rounds) {
    const int best = fastest(rounds);
    if (best < 0) {
      result_.note = alive_.empty() ? "every candidate failed" : "the GPU was throttled throughout";
      return;
    }
    note_figures(rounds, best);
    const auto ties = [&](int candidate) {
      const auto [slower, error] = rounds.difference(candidate, best);
      return candidate == best || slower <= std::max(options_.least_margin, sure * error);
    };
    std::vector<int> tied;
    for (int candidate : alive_)
      if (ties(candidate)) tied.push_back(candidate);
    std::stable_sort(tied.begin(), tied.end(), [&](int a, int b) { return footprints_[a] < footprints_[b]; });
    if (failed(0)) {
      result_.winner = tied.front();
      result_.margin = options_.least_margin;
      result_.note = "the default failed: " + result_.candidates[0].failure;
      return;
    }
    result_.winner = 0;
    result_.margin = std::max(options_.least_margin, sure * rounds.difference(0, best).error);
    if (best == 0 || ties(0)) {
      if (best == 0) result_.margin = options_.least_margin;
      return;
    }
    for (int candidate : tied) {
      const auto [slower, error] = rounds.difference(0, candidate);
      if (slower <= std::max(options_.least_margin, sure * error)) continue;
      result_.winner = candidate;
      result_.gain = std::expm1(slower);
      result_.margin = std::max(options_.least_margin, sure * error);
      return;
    }
  }

  const std::vector<Footprint>& footprints_;
  Stopwatch& stopwatch_;
  const SelectionOptions& options_;
  std::mt19937_64 random_;
  std::vector<int> alive_;  // in ascending order
  Selection result_;
};

}  // namespace

double median_of(std::vector<double> figures) {
  const size_t middle = figures.size() / 2;
  std::nth_element(figures.begin(), figures.begin() + static_cast<std::ptrdiff_t>(middle), figures.end());
  const double upper = figures[middle];
  if (figures.size() % 2) return upper;
  return (upper + *std::max_element(figures.begin(), figures.begin() + static_cast<std::ptrdiff_t>(middle))) /
         2;
}

double deviation_of(const std::vector<double>& figures) {
  const double middle = median_of(figures);
  std::vector<double> distances;
  for (double figure : figures) distances.push_back(std::abs(figure - middle));
  return median_of(distances);
}

Selection select_fastest(const std::vector<Footprint>& footprints, Stopwatch& stopwatch,
                         const SelectionOptions& options) {
  return Search(footprints, stopwatch, options).run();
}

}  // namespace tilewright
