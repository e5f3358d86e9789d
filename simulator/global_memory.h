// The launch's buffers: who may read and write which byte, and who wrote it. Shared by all blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "simulator/simulator.h"

namespace tilewright::simulator {

class GlobalMemory {
 public:
  /// Throws std::bad_alloc. Buffers may overlap.
  explicit GlobalMemory(const std::vector<Buffer>& buffers);

  /// Whether all bytes lie in one buffer and hold values.
  bool may_read(const void* address, int bytes) const;
  /// Why not, for a report.
  std::string read_fault(const void* address, int bytes) const;

  /// Notes that `writer` stores `bytes` (2, 4, 8 or 16, aligned): false if that is a fault, then
  /// `write_fault` says which. Two writers of one byte are a fault; one writer may store again. Writers count
  /// from 0. Counters may be stored by anybody.
  bool note_write(const void* address, int bytes, uint64_t writer);
  struct WriteFault {
    std::string message;
    int64_t other_writer = -1;  // who wrote it before, if that is the fault
  };
  WriteFault write_fault(const void* address, int bytes, uint64_t writer) const;

  /// Why nobody may add atomically there; empty: one may.
  std::string add_fault(const void* address, int bytes) const;
  std::string sum_fault(const void* address, int bytes) const;

 private:
  struct Region {
    Buffer buffer;
    // Who wrote each pair of bytes: writer + 1 modulo 2^32, 0 for nobody. Only for writable buffers.
    std::unique_ptr<std::atomic<uint32_t>[], void (*)(void*)> writers { nullptr, nullptr };
    bool contains(const void* address, int bytes) const;
    uintptr_t begin() const { return reinterpret_cast<uintptr_t>(buffer.data); }
  };
  static uint32_t mark(uint64_t writer);
  const Region* find(const void* address, int bytes, bool writable) const;
  std::string outside(const void* address, int bytes) const;

  std::vector<Region> regions_;
};

}  // namespace tilewright::simulator
