// Finds the fastest of several candidates by a noisy clock. Knows nothing of GPUs: the clock is an interface.
//
// Every round runs the candidates that are left once, in a new random order, so that drifting clocks meet all
// alike; what counts are differences of logarithms inside a round. Halving leaves the slow ones behind, but
// none that the noise could have put there. The finalists are timed afresh, beside candidate 0, the default.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tilewright {

struct Sample {
  double microseconds = 0;
  bool throttled = false;  // the GPU ran slower than it could: to be discarded
  std::string failure;     // not empty: the candidate is out, for this reason
};

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  /// Runs each of the candidates once, in this order, with cold caches. A sample for each.
  virtual std::vector<Sample> round(const std::vector<int>& order) = 0;
  /// Time so far, in seconds.
  virtual double seconds() = 0;
};

/// What decides between candidates of the same speed: less shared memory, then fewer threads.
struct Footprint {
  int shared_memory = 0;
  int threads = 0;
  auto operator<=>(const Footprint&) const = default;
};

struct SelectionOptions {
  uint64_t seed = 1;            // of the orders
  double least_margin = 0.006;  // differences up to this are none, however quiet the clock
  int finalists = 4;            // beside the default
  int final_rounds = 15;        // at least; more if the noise asks for it
  int most_final_rounds = 400;  // short kernels are noisy, and cheap
  double final_seconds = 2;     // after which the noise is taken as it is
  bool exhaustive = false;      // nothing is left behind before the final
  double deadline = std::numeric_limits<double>::infinity();  // by Stopwatch::seconds
  std::function<void(const std::string& stage, int left)> progress;
};

struct CandidateFigures {
  std::vector<double> samples;  // microseconds, in order, without throttled ones
  double median = 0;            // of the last stage it took part in; 0: no sample
  double deviation = 0;         // median absolute deviation from it
  double slower = 0;            // than the fastest, as a fraction, from paired rounds of its last stage
  bool finalist = false;
  std::string failure;
};

struct Selection {
  int winner = -1;    // -1: nothing could be timed
  double gain = 0;    // the default's time over the winner's, minus 1; 0 if the default stays
  double margin = 0;  // what a candidate had to be faster by to replace the default
  int rounds = 0;
  int throttled = 0;  // samples discarded
  bool out_of_time = false;
  std::string note;  // what a reader should know, if anything
  std::vector<CandidateFigures> candidates;
};

/// `footprints`: of the candidates, the default first. The same answer for the same samples.
Selection select_fastest(const std::vector<Footprint>& footprints, Stopwatch& stopwatch,
                         const SelectionOptions& options = {});

/// Of at least one figure.
double median_of(std::vector<double> figures);
/// Median absolute deviation from the median.
double deviation_of(const std::vector<double>& figures);

}  // namespace tilewright
