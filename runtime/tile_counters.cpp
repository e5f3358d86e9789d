#include "runtime/tile_counters.h"

#include <algorithm>
#include <string>

#include "codegen/error.h"
#include "runtime/driver.h"

namespace tilewright {
namespace {

constexpr size_t slot_bytes = 128;  // a line of L2: streams do not slow each other down

}  // namespace

int StreamSlots::find_or_claim(uint64_t stream_id) noexcept {
  const uint64_t owner = stream_id + 1;
  // All look in the same order: a stream that two threads bring at once meets itself at the first free place.
  for (int slot = 0; slot < count; ++slot) {
    uint64_t present = owners_[slot].load(std::memory_order_relaxed);
    if (present == 0 && owners_[slot].compare_exchange_strong(present, owner, std::memory_order_relaxed))
      return slot;
    if (present == owner) return slot;
  }
  return -1;
}

TileCounters::TileCounters() {
  const Driver& cuda = driver();
  check(cuda.memory_allocate(&memory_, StreamSlots::count * slot_bytes), "allocate the kernel's counters");
  CUresult result = cuda.fill_bytes(memory_, 0, StreamSlots::count * slot_bytes);
  // The zeros must be there for launches on any stream.
  if (result == CUDA_SUCCESS) result = cuda.context_synchronize();
  if (result == CUDA_SUCCESS) return;
  cuda.memory_free(memory_);
  check(result, "clear the kernel's counters");
}

TileCounters::~TileCounters() {
  driver().memory_free(memory_);
}

int* TileCounters::counters_for(CUstream stream) noexcept {
  // One handle for a stream of each thread: their launches overlap.
  if (stream == CU_STREAM_PER_THREAD) return nullptr;
  // Null is the legacy stream by another name.
  if (stream == nullptr) stream = CU_STREAM_LEGACY;
  // A graph that is captured here may be replayed on any stream, on several at once. The legacy stream
  // answers with an error while another stream is captured.
  const Driver& cuda = driver();
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (cuda.stream_is_capturing(stream, &capture) != CUDA_SUCCESS) return nullptr;
  if (capture != CU_STREAM_CAPTURE_STATUS_NONE) return nullptr;
  // A handle is used again once its stream is destroyed, while its last launches may still run. An id is not.
  unsigned long long id = 0;
  if (cuda.stream_id(stream, &id) != CUDA_SUCCESS) return nullptr;
  const int slot = slots_.find_or_claim(id);
  return slot < 0 ? nullptr : reinterpret_cast<int*>(memory_ + slot * slot_bytes);
}

int blocks_to_share_tiles(int multiprocessors, const LaunchOptions& options, int cluster) {
  if (options.sm_margin < 0 || options.sm_margin >= multiprocessors)
    throw Error(ErrorKind::usage, "sm_margin is " + std::to_string(options.sm_margin) + ", expected 0 to " +
                                      std::to_string(multiprocessors - 1) + ": the device has " +
                                      std::to_string(multiprocessors) + " multiprocessors");
  return std::max(1, (multiprocessors - options.sm_margin) / cluster);
}

bool tiles_to_share(int64_t tiles, int blocks) {
  return tiles > blocks && tiles <= INT32_MAX - blocks;
}

}  // namespace tilewright
