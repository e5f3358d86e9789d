// Fibers: a call stack one can leave in the middle and come back to. One CUDA thread is one fiber.
#pragma once

#include <cstddef>
#include <memory>

// The portable fallback is 30 times slower; define TILEWRIGHT_PORTABLE_FIBERS to try it on x86-64.
#if defined(__x86_64__) && !defined(TILEWRIGHT_PORTABLE_FIBERS)
#define TILEWRIGHT_FAST_FIBERS
#else
#include <ucontext.h>
#endif

#if defined(TILEWRIGHT_FAST_FIBERS)
extern "C" __attribute__((visibility("hidden"))) void tilewright_switch_fiber(void** save, void* load);
#endif

namespace tilewright::simulator {

/// Where a fiber that is not running goes on.
struct FiberContext {
#if defined(TILEWRIGHT_FAST_FIBERS)
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
};

/// Makes `context` start `entry` at its next turn, on the stack that ends at `stack_end`. `entry` must not
/// return.
void prepare_fiber(FiberContext& context, std::byte* stack_end, size_t stack_bytes, void (*entry)());

/// Leaves `from`, goes on in `to`. Returns when somebody switches back to `from`.
#if defined(TILEWRIGHT_FAST_FIBERS)
inline void switch_fiber(FiberContext& from, FiberContext& to) {
  tilewright_switch_fiber(&from.stack_pointer, to.stack_pointer);
}
#else
void switch_fiber(FiberContext& from, FiberContext& to);
#endif

/// The stacks of one block in flight. Each has an inaccessible page below it: an overflow stops, it never
/// corrupts.
class FiberStacks {
 public:
  static constexpr size_t stack_bytes = 256 << 10;
  static constexpr size_t usable_bytes = stack_bytes - 4096;

  /// Takes stacks from the process-wide pool, or maps new ones. Throws Error(environment) if memory runs out.
  explicit FiberStacks(int count);
  /// Gives them back to the pool.
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  /// One past the highest byte of a stack.
  std::byte* end_of(int index) const;

 private:
  struct Mapping;
  class Pool;
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace tilewright::simulator
