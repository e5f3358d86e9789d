// What the files of `tilewright tune` share.
#pragma once

#include <string>
#include <vector>

#include "cli/output.h"
#include "codegen/io_model.h"
#include "tuner/child_process.h"
#include "tuner/gpu_bench.h"
#include "tuner/tuner.h"

namespace tilewright::cli {

struct TuneJob {
  std::string file, title;
  AttentionSpec spec;
};

struct TuneSettings {
  TuneOptions options;
  int jobs = 0;  // compiles at once, of each GPU
  std::filesystem::path cache_directory;
};

/// What a worker says while it tunes, and what it has in the end.
struct TuneOutcome {
  std::string failure;   // not empty: nothing was tuned
  bool skipped = false;  // the tuner does not cover the spec: no failure of anybody's
  std::string records;   // a file of records with those of this spec
  Json json;             // for --json and the log
};

/// `--dry-run`: the space, what was refused and why, and the candidates ranked by the model.
void print_dry_run(const TuneJob& job, const Target& target, const TuneSettings& settings, bool json,
                   Json& list);

/// Serves a GPU in a child process: receives the numbers of jobs, sends progress and outcomes.
void serve_tuning(Channel& channel, const GpuOfHost& gpu, const std::vector<TuneJob>& jobs,
                  TuneSettings settings);

/// A message of a worker: progress, or with `done` an outcome.
struct TuneMessage {
  bool done = false;
  TuneProgress progress;
  TuneOutcome outcome;
};
TuneMessage read_tune_message(const std::string& bytes);
/// What a worker is asked to do.
std::string tune_request(size_t job, double seconds);

}  // namespace tilewright::cli
