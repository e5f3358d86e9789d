// Warnings for the people who run the program: to stderr, each text once a process.
#pragma once

#include <functional>
#include <string>

namespace tilewright {

/// Prints "tilewright: warning: <text>" unless this very text was printed before.
void warn_once(const std::string& text);

/// Sends warnings elsewhere, and forgets which were given. Null: back to stderr. For tests.
void set_warning_handler(std::function<void(const std::string&)> handler);

}  // namespace tilewright
