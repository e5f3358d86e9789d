#include "simulator/global_memory.h"

#include <cstdlib>
#include <new>

#include <fmt/format.h>

namespace tilewright::simulator {

GlobalMemory::GlobalMemory(const std::vector<Buffer>& buffers) {
  for (const Buffer& buffer : buffers) {
    if (!buffer.data || buffer.bytes == 0) continue;
    Region region;
    region.buffer = buffer;
    if (buffer.writable) {
      // calloc: pages that no kernel writes stay unmapped.
      void* marks = std::calloc(buffer.bytes / 2 + 1, sizeof(std::atomic<uint32_t>));
      if (!marks) throw std::bad_alloc();
      region.writers = {static_cast<std::atomic<uint32_t>*>(marks), std::free};
    }
    regions_.push_back(std::move(region));
  }
}

bool GlobalMemory::Region::contains(const void* address, int bytes) const {
  const uintptr_t offset =
      reinterpret_cast<uintptr_t>(address) - begin();  // wraps to something large if below
  return offset < buffer.bytes && buffer.bytes - offset >= static_cast<size_t>(bytes);
}

// A launch with 2^32 threads would keep the simulator busy for years: two writers never share a mark.
uint32_t GlobalMemory::mark(uint64_t writer) {
  return static_cast<uint32_t>(writer + 1);
}

const GlobalMemory::Region* GlobalMemory::find(const void* address, int bytes, bool writable) const {
  for (const Region& region : regions_) {
    if (region.contains(address, bytes) && (region.buffer.writable || !writable)) return &region;
  }
  return nullptr;
}

bool GlobalMemory::may_read(const void* address, int bytes) const {
  const Region* region = find(address, bytes, false);
  if (!region) return false;
  if (region->buffer.initialised) return true;
  if (!region->writers) return false;
  const size_t offset = reinterpret_cast<uintptr_t>(address) - region->begin();
  for (size_t i = offset / 2; i < (offset + bytes + 1) / 2; ++i) {
    if (region->writers[i].load(std::memory_order_relaxed) == 0) return false;
  }
  return true;
}

std::string GlobalMemory::read_fault(const void* address, int bytes) const {
  const Region* region = find(address, bytes, false);
  if (!region) return outside(address, bytes);
  return fmt::format("reads bytes {}-{} of \"{}\" that nobody has written",
                     reinterpret_cast<uintptr_t>(address) - region->begin(),
                     reinterpret_cast<uintptr_t>(address) - region->begin() + bytes - 1, region->buffer.name);
}

bool GlobalMemory::note_write(const void* address, int bytes, uint64_t writer) {
  const Region* region = find(address, bytes, true);
  if (!region) return false;
  if (region->buffer.counters) return true;
  const size_t first = (reinterpret_cast<uintptr_t>(address) - region->begin()) / 2;
  for (int i = 0; i < bytes / 2; ++i) {
    const uint32_t before = region->writers[first + i].exchange(mark(writer), std::memory_order_relaxed);
    if (before != 0 && before != mark(writer)) {
      region->writers[first + i].store(before, std::memory_order_relaxed);  // write_fault wants to see it
      return false;
    }
  }
  return true;
}

GlobalMemory::WriteFault GlobalMemory::write_fault(const void* address, int bytes, uint64_t writer) const {
  if (const Region* region = find(address, bytes, true)) {
    const size_t offset = reinterpret_cast<uintptr_t>(address) - region->begin();
    for (int i = 0; i < bytes / 2; ++i) {
      const uint32_t before = region->writers[offset / 2 + i].load(std::memory_order_relaxed);
      if (before == 0 || before == mark(writer)) continue;
      return {fmt::format("writes byte {} of \"{}\", written before", offset + 2 * i, region->buffer.name),
              static_cast<int64_t>(before - 1)};
    }
  }
  if (const Region* region = find(address, bytes, false)) {
    return {fmt::format("writes byte {} of \"{}\", which the kernel may only read",
                        reinterpret_cast<uintptr_t>(address) - region->begin(), region->buffer.name)};
  }
  return {outside(address, bytes)};
}

std::string GlobalMemory::add_fault(const void* address, int bytes) const {
  const Region* region = find(address, bytes, true);
  if (region)
    return region->buffer.counters ? ""
                                   : "adds to \"" + region->buffer.name + "\", which does not hold counters";
  region = find(address, bytes, false);
  return region ? "adds to \"" + region->buffer.name + "\", which the kernel may only read"
                : outside(address, bytes);
}

std::string GlobalMemory::sum_fault(const void* address, int bytes) const {
  const Region* region = find(address, bytes, false);
  if (!region) return outside(address, bytes);
  return region->buffer.sums ? "" : "adds to \"" + region->buffer.name + "\", which does not hold sums";
}

std::string GlobalMemory::outside(const void* address, int bytes) const {
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  const Region* nearest = nullptr;
  uintptr_t nearest_distance = 0;
  for (const Region& region : regions_) {
    const uintptr_t end = region.begin() + region.buffer.bytes;
    const uintptr_t distance = at < region.begin() ? region.begin() - at : at < end ? 0 : at - end;
    if (nearest && distance >= nearest_distance) continue;
    nearest = &region;
    nearest_distance = distance;
  }
  if (!nearest)
    return fmt::format("{} bytes at {}: the launch has no global memory", bytes, fmt::ptr(address));
  const uintptr_t end = nearest->begin() + nearest->buffer.bytes;
  if (at < nearest->begin()) {
    return fmt::format("{} bytes at {}, outside of every buffer: {} bytes before \"{}\"", bytes,
                       fmt::ptr(address), nearest_distance, nearest->buffer.name);
  }
  if (at >= end) {
    return fmt::format("{} bytes at {}, outside of every buffer: {} bytes past the end of \"{}\" ({} bytes)",
                       bytes, fmt::ptr(address), nearest_distance, nearest->buffer.name,
                       nearest->buffer.bytes);
  }
  return fmt::format("{} bytes at offset {} of \"{}\" run past its end ({} bytes)", bytes,
                     at - nearest->begin(), nearest->buffer.name, nearest->buffer.bytes);
}

}  // namespace tilewright::simulator
