// The one registry of the environment variables that Tilewright reads.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace tilewright {

enum class Variable {
  cache_directory,
  site_cache_directory,
  cache_debug,
  bundles,
  compiling,
  lock_seconds,
  records_directory,
  nvrtc,
  driver,
  llvm_plugin,
  cxx,
};

struct EnvironmentVariable {
  Variable variable;
  const char* name;
  const char* meaning;
  const char* fallback;  // what happens when it is not set, in words
};

/// All of them, in the order of `Variable`. `tilewright doctor` lists them.
std::span<const EnvironmentVariable> environment_variables();

const char* name_of(Variable variable);

/// The value, or nothing if the variable is unset or empty.
std::optional<std::string> environment(Variable variable);

/// Whether a variable that switches something is on: set, and not "0".
bool environment_flag(Variable variable);

/// The value as a number of at least 0. Throws Error(usage) naming the variable if it is something else.
std::optional<double> environment_number(Variable variable);

}  // namespace tilewright
