#include "simulator/crash_guard.h"

#include "simulator/block.h"

#if defined(__x86_64__)

#include <signal.h>
#include <ucontext.h>

#include <iterator>
#include <mutex>

namespace tilewright::simulator {
namespace {

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

// What the process had before the first guard.
std::mutex mutex;
int guards = 0;
struct sigaction previous[std::size(signals)];

thread_local int crash_signal = 0;
thread_local void* crash_address = nullptr;

// Where a crashed fiber goes on: at the top of its own stack, which nothing needs any more.
[[noreturn]] void land() {
  Block::current().fail_crashed(crash_signal, crash_address);
}

void on_crash(int signal, siginfo_t* information, void* context) {
  if (!Block::on_fiber()) {
    // Not ours. The instruction repeats and meets the handler that was there before.
    for (size_t i = 0; i < std::size(signals); ++i) {
      if (signals[i] == signal) sigaction(signal, &previous[i], nullptr);
    }
    return;
  }
  crash_signal = signal;
  crash_address = information->si_addr;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto top = reinterpret_cast<greg_t>(Block::current().stack_end()) & ~greg_t{15};
  registers[REG_RSP] = top - 8;  // as after a call
  registers[REG_RIP] = reinterpret_cast<greg_t>(&land);
}

}  // namespace

// The handler needs a stack of its own: the fiber's may be what has run out.
struct CrashGuard::SignalStack {
  stack_t before = {};
  char memory[64 << 10];
};

CrashGuard::CrashGuard() : stack_(std::make_unique<SignalStack>()) {
  stack_t stack = {};
  stack.ss_sp = stack_->memory;
  stack.ss_size = sizeof stack_->memory;
  sigaltstack(&stack, &stack_->before);
  const std::lock_guard lock(mutex);
  if (guards++ > 0) return;
  struct sigaction action = {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (size_t i = 0; i < std::size(signals); ++i) sigaction(signals[i], &action, &previous[i]);
}

CrashGuard::~CrashGuard() {
  {
    const std::lock_guard lock(mutex);
    if (--guards == 0) {
      for (size_t i = 0; i < std::size(signals); ++i) sigaction(signals[i], &previous[i], nullptr);
    }
  }
  sigaltstack(&stack_->before, nullptr);
}

}  // namespace tilewright::simulator

#else

namespace tilewright::simulator {

struct CrashGuard::SignalStack {};

CrashGuard::CrashGuard() = default;
CrashGuard::~CrashGuard() = default;

}  // namespace tilewright::simulator

#endif
