#include "cli/failure.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/command.h"

namespace tilewright::cli {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
    case ErrorKind::spec:
      return exit_usage;
    case ErrorKind::environment:
      return exit_environment;
    case ErrorKind::compile:
      return exit_compile;
    case ErrorKind::device:
    case ErrorKind::internal:
      return exit_internal;
  }
  return exit_internal;
}

int report(const Error& error) {
  fmt::print(stderr, "tilewright: error: {}\n", error.what());
  if (const auto* compile = dynamic_cast<const CompileError*>(&error)) {
    if (!compile->log().empty()) fmt::print(stderr, "{}\n", compile->log());
    if (!compile->command().empty()) fmt::print(stderr, "command: {}\n", compile->command());
    if (!compile->source_path().empty()) fmt::print(stderr, "source: {}\n", compile->source_path());
  }
  return exit_code(error.kind());
}

void remark(const std::string& text) {
  fmt::print(stderr, "tilewright: {}\n", text);
}

}  // namespace tilewright::cli
