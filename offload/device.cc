#include "offload/device.h"

namespace fasa {

Buffer::~Buffer() {
  if (data_ != nullptr) device_->do_free(space_, data_, bytes_);
}

Stream::~Stream() {
  if (device_ != nullptr) device_->destroy_stream(view_);
}

Event::~Event() {
  if (device_ != nullptr) device_->destroy_event(view_);
}

Buffer Device::allocate(MemorySpace space, size_t bytes, std::string_view purpose) {
  if (bytes == 0) return {};
  return {this, space, do_allocate(space, bytes, purpose), bytes};
}

}  // namespace fasa
