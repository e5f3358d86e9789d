#include "simulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "codegen/error.h"

// The switch saves what the calling convention says a call preserves, and nothing else: six registers and the
// stack pointer. swapcontext also saves the signal mask, a system call that makes it some thirty times
// slower.
#if defined(TILEWRIGHT_FAST_FIBERS)
asm(R"(
.text
.globl tilewright_switch_fiber
.hidden tilewright_switch_fiber
.type tilewright_switch_fiber, @function
tilewright_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rdx
  jmp *%rdx
.size tilewright_switch_fiber, . - tilewright_switch_fiber
)");
#endif

namespace tilewright::simulator {

#if defined(TILEWRIGHT_FAST_FIBERS)

void prepare_fiber(FiberContext& context, std::byte* stack_end, size_t, void (*entry)()) {
  // As the switch leaves a stack: six registers, then the address to go on at. The empty slot above stands
  // for entry's return address, so that the stack is aligned as after a call.
  void** top = reinterpret_cast<void**>(stack_end);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context.stack_pointer = top;
}

#else

void prepare_fiber(FiberContext& context, std::byte* stack_end, size_t stack_bytes, void (*entry)()) {
  getcontext(&context.context);
  context.context.uc_stack.ss_sp = stack_end - stack_bytes;
  context.context.uc_stack.ss_size = stack_bytes;
  context.context.uc_link = nullptr;
  makecontext(&context.context, entry, 0);
}

void switch_fiber(FiberContext& from, FiberContext& to) {
  swapcontext(&from.context, &to.context);
}

#endif

// Mappings are kept, because each guard page is a mapping of its own to the kernel, which allows a process
// about 65000 of them, and because mapping takes longer than running a small block.
struct FiberStacks::Mapping {
  int count = 0;
  size_t page = 0;
  std::byte* base = nullptr;

  explicit Mapping(int stacks) : count(stacks), page(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* memory =
        mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) refuse("map");
    base = static_cast<std::byte*>(memory);
    for (int i = 0; i < count; ++i) {
      if (mprotect(base + i * stride(), page, PROT_NONE) != 0) {
        const int reason = errno;
        munmap(base, bytes());
        errno = reason;
        refuse("protect");
      }
    }
  }
  ~Mapping() { munmap(base, bytes()); }

  size_t stride() const { return stack_bytes + page; }
  size_t bytes() const { return count * stride(); }

  [[noreturn]] void refuse(const char* what) const {
    throw Error(ErrorKind::environment, std::string("simulator: cannot ") + what + " the stacks of " +
                                            std::to_string(count) + " threads (" +
                                            std::to_string(bytes() >> 20) +
                                            " MiB of address space): " + std::strerror(errno));
  }
};

// At most this many sets of stacks wait for their next block; it bounds what an idle process holds.
static constexpr size_t pool_limit = 16;

class FiberStacks::Pool {
 public:
  std::unique_ptr<Mapping> take(int count) {
    const std::lock_guard lock(mutex_);
    for (auto& mapping : unused_) {
      if (mapping->count < count) continue;
      std::swap(mapping, unused_.back());
      auto taken = std::move(unused_.back());
      unused_.pop_back();
      return taken;
    }
    return nullptr;
  }
  void give(std::unique_ptr<Mapping> mapping) {
    const std::lock_guard lock(mutex_);
    if (unused_.size() < pool_limit) unused_.push_back(std::move(mapping));
  }
  static Pool& instance() {
    static Pool pool;
    return pool;
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Mapping>> unused_;
};

FiberStacks::FiberStacks(int count) : mapping_(Pool::instance().take(count)) {
  if (!mapping_) mapping_ = std::make_unique<Mapping>(count);
}

FiberStacks::~FiberStacks() {
  Pool::instance().give(std::move(mapping_));
}

std::byte* FiberStacks::end_of(int index) const {
  // Up to 4 kB short: stacks that all end at the same offset of a page would share a few sets of the cache.
  return mapping_->base + (index + 1) * mapping_->stride() - 64 * (index % 61);
}

}  // namespace tilewright::simulator
