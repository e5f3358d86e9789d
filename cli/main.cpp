// The `tilewright` command: data on stdout, everything else on stderr, exit codes as in docs/command-line.md.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/failure.h"
#include "codegen/nearest.h"
#include "tilewright/tilewright.hpp"

namespace tilewright::cli {
namespace {

/// CLI11 would only say that an argument was not expected. Returns whether the first word, or the second
/// after a command that has commands of its own, is no command of `app`.
bool refuse_unknown_command(const CLI::App& app, int argc, char** argv) {
  const std::vector<const CLI::App*> commands = app.get_subcommands([](const CLI::App*) { return true; });
  std::string_view word = argc > 1 ? argv[1] : "";
  if (commands.empty() || word.empty() || word.starts_with('-')) return false;
  std::vector<std::string> names;
  for (const CLI::App* command : commands) {
    if (word == command->get_name()) return refuse_unknown_command(*command, argc - 1, argv + 1);
    names.push_back(command->get_name());
  }
  std::string_view near = nearest(word, names);
  fmt::print(stderr, "tilewright: error: unknown command '{}'; expected one of {}{}{}\n", word,
             fmt::join(names, ", "), near.empty() ? "" : "; nearest: ", near);
  return true;
}

int run_chosen(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return exit_usage;  // CLI11 requires a subcommand, so that this is never reached
}

/// A full disk or a closed pipe must not look like success.
int finish(int code) {
  bool written = std::fflush(stdout) == 0 && !std::ferror(stdout);
  if (written) return code;
  fmt::print(stderr, "tilewright: error: the output could not be written\n");
  return code == exit_ok ? exit_environment : code;
}

int main(int argc, char** argv) {
  CLI::App root("Tilewright turns attention specs into CUDA kernels made for exactly that spec.",
                "tilewright");
  root.set_version_flag("--version", "tilewright " + std::string(version()));
  root.require_subcommand(1);
  root.footer("`tilewright COMMAND --help` explains a command.");
  const std::vector<Command> commands = {add_run(root),     add_emit(root),       add_compile(root),
                                         add_explain(root), add_validate(root),   add_targets(root),
                                         add_cache(root),   add_precompile(root), add_bundle(root),
                                         add_doctor(root),  add_tune(root),       add_report(root)};
  if (refuse_unknown_command(root, argc, argv)) return exit_usage;
  try {
    root.parse(argc, argv);
    return finish(run_chosen(commands));
  } catch (const CLI::ParseError& error) {
    bool asked_for = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);  // --help, --version
    if (asked_for) {
      root.exit(error);
      return finish(exit_ok);
    }
    fmt::print(stderr, "tilewright: error: {}\nRun with --help for the options.\n", error.what());
    return exit_usage;
  } catch (const Error& error) {
    return finish(report(error));
  } catch (const std::bad_alloc&) {
    return finish(report(Error(ErrorKind::environment, "out of memory")));
  } catch (const std::exception& error) {
    return finish(report(Error(ErrorKind::internal, std::string("unexpected: ") + error.what())));
  }
}

}  // namespace
}  // namespace tilewright::cli

int main(int argc, char** argv) {
  return tilewright::cli::main(argc, argv);
}
