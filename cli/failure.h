// How errors reach people and scripts: a text on stderr, an exit code.
#pragma once

#include <string>

#include "codegen/error.h"

namespace tilewright::cli {

int exit_code(ErrorKind kind);

/// "tilewright: error: …" on stderr; of a CompileError the log, the command and the source's path too.
/// Returns the exit code.
int report(const Error& error);

/// "tilewright: …" on stderr: progress and remarks, never data.
void remark(const std::string& text);

}  // namespace tilewright::cli
