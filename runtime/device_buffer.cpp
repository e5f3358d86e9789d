#include "runtime/device_buffer.h"

#include <utility>

#include "runtime/device.h"

namespace tilewright {

DeviceBuffer::DeviceBuffer(Runtime& runtime, size_t bytes)
    : device_(&runtime.device()), data_(device_->allocate(bytes)), bytes_(bytes) {}

DeviceBuffer::~DeviceBuffer() {
  if (data_) device_->free(data_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void DeviceBuffer::upload(const void* host) {
  device_->upload(data_, host, bytes_);
}
void DeviceBuffer::download(void* host) const {
  device_->download(host, data_, bytes_);
}
void DeviceBuffer::fill(unsigned char value) {
  device_->fill(data_, value, bytes_);
}

}  // namespace tilewright
