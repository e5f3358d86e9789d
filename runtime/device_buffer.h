// Memory on whatever device a runtime runs kernels, for tools and tests. Engines bring their own.
#pragma once

#include <cstddef>

#include "runtime/include/tilewright/tilewright.hpp"

namespace tilewright {

/// Owns `bytes` bytes of device memory (host memory with the simulator), aligned to 256 bytes, not
/// initialised. Must not outlive the runtime. All operations have finished when they return and throw
/// Error(device) if the driver fails.
class DeviceBuffer {
 public:
  DeviceBuffer(Runtime& runtime, size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  /// Copies all of the buffer from or to host memory, after everything launched before has finished.
  void upload(const void* host);
  void download(void* host) const;
  void fill(unsigned char value);

 private:
  Device* device_;
  void* data_ = nullptr;
  size_t bytes_;
};

}  // namespace tilewright
