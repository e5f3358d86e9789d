// Every error that Tilewright throws at its user.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#pragma GCC visibility push(default)  // exported by libtilewright.so
namespace tilewright {

/// What went wrong, by who can mend it. The command line's exit code follows from it.
enum class ErrorKind {
  usage,        // bad arguments at launch or on the command line (exit 2)
  spec,         // a spec that is malformed or that no kernel serves (exit 2)
  environment,  // no driver, no compiler, no device, a directory that cannot be used (exit 3)
  compile,      // the compiler refused generated source (exit 4)
  device,       // a launch failed, or the simulator found a fault (exit 5)
  internal      // a defect of Tilewright (exit 5)
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message) : std::runtime_error(std::move(message)), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/// The message starts with "file:line:column: ".
class SpecError : public Error {
 public:
  SpecError(std::string message, int line, int column)
      : Error(ErrorKind::spec, std::move(message)), line_(line), column_(column) {}
  int line() const { return line_; }
  int column() const { return column_; }

 private:
  int line_, column_;
};

/// Carries what is needed to repeat the compile by hand.
class CompileError : public Error {
 public:
  CompileError(std::string message, std::string log, std::string command, std::string source_path)
      : Error(ErrorKind::compile, std::move(message)),
        log_(std::move(log)),
        command_(std::move(command)),
        source_path_(std::move(source_path)) {}
  const std::string& log() const { return log_; }
  const std::string& command() const { return command_; }
  const std::string& source_path() const { return source_path_; }

 private:
  std::string log_, command_, source_path_;
};

}  // namespace tilewright
#pragma GCC visibility pop
