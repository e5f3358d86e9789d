// The subcommands of `tilewright`. Each registers its options with the root and says how to run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tilewright::cli {

struct Command {
  CLI::App* app;
  std::function<int()> run;  // returns the exit code; throws Error
};

Command add_run(CLI::App& root);
Command add_emit(CLI::App& root);
Command add_compile(CLI::App& root);
Command add_explain(CLI::App& root);
Command add_validate(CLI::App& root);
Command add_targets(CLI::App& root);
Command add_cache(CLI::App& root);
Command add_precompile(CLI::App& root);
Command add_bundle(CLI::App& root);
Command add_doctor(CLI::App& root);
Command add_tune(CLI::App& root);
Command add_report(CLI::App& root);

/// Exit codes, for scripts: see docs/command-line.md.
inline constexpr int exit_ok = 0;
inline constexpr int exit_wrong_result = 1;
inline constexpr int exit_usage = 2;
inline constexpr int exit_environment = 3;
inline constexpr int exit_compile = 4;
inline constexpr int exit_internal = 5;

}  // namespace tilewright::cli
