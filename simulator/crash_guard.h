// Turns a crash of generated code (a wild pointer, a stack overflow, a trap) into a report: a faulty kernel
// must not take its process down.
#pragma once

#include <memory>

namespace tilewright::simulator {

/// While an object lives, SIGSEGV, SIGBUS, SIGFPE and SIGILL raised by a fiber of the calling thread end its
/// block with a report. The process's own handlers get all others and are back in place after the last
/// object. On x86-64 alone; elsewhere it does nothing.
class CrashGuard {
 public:
  CrashGuard();
  ~CrashGuard();
  CrashGuard(const CrashGuard&) = delete;
  CrashGuard& operator=(const CrashGuard&) = delete;

 private:
  struct SignalStack;
  std::unique_ptr<SignalStack> stack_;
};

}  // namespace tilewright::simulator
