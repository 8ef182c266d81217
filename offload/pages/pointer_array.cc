#include "offload/pages/pointer_array.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fasa {
namespace {

constexpr int64_t kFirstCapacity = 16;

}  // namespace

PointerArray::PointerArray(Device& device, std::string purpose)
    : device_(&device), purpose_(std::move(purpose)), uploads_(device.create_event()) {}

void PointerArray::reserve(int64_t entries) {
  if (entries <= capacity_) return;
  const int64_t capacity = std::max({entries, 2 * capacity_, kFirstCapacity});
  const size_t bytes = static_cast<size_t>(capacity) * sizeof(std::byte*);
  replaced_.reserve(replaced_.size() + 1);
  Buffer host_copy = device_->allocate(MemorySpace::kHost, bytes, purpose_);
  Buffer array = device_->allocate(MemorySpace::kDevice, bytes, purpose_);
  if (size_ > 0) {
    std::memcpy(host_copy.data(), host_copy_.data(),
                static_cast<size_t>(size_) * sizeof(std::byte*));
  }
  if (array_) replaced_.push_back({std::move(array_), std::move(host_copy_), capacity_});
  array_ = std::move(array);
  host_copy_ = std::move(host_copy);
  capacity_ = capacity;
  dirty_ = 0;
  uploaded_ = 0;
}

void PointerArray::prepare_overwrite(int64_t first) {
  if (first >= uploaded_) return;
  device_->synchronize(uploads_.view());
  uploaded_ = 0;
}

void PointerArray::append(std::byte* value) noexcept {
  host_copy_.as<std::byte*>()[size_] = value;
  dirty_ = std::min(dirty_, size_);
  ++size_;
}

void PointerArray::set(int64_t index, std::byte* value) noexcept {
  host_copy_.as<std::byte*>()[index] = value;
  dirty_ = std::min(dirty_, index);
}

void PointerArray::truncate(int64_t entries) noexcept {
  size_ = std::min(size_, entries);
  dirty_ = std::min(dirty_, size_);
}

void PointerArray::shrink(int64_t capacity) noexcept {
  while (capacity_ > capacity && !replaced_.empty()) {
    Replaced& last = replaced_.back();
    // Unchanged except for entries that were set since.
    const size_t bytes = static_cast<size_t>(size_) * sizeof(std::byte*);
    if (std::memcmp(last.host_copy.data(), host_copy_.data(), bytes) != 0) {
      std::memcpy(last.host_copy.data(), host_copy_.data(), bytes);
    }
    array_ = std::move(last.array);
    host_copy_ = std::move(last.host_copy);
    capacity_ = last.capacity;
    replaced_.pop_back();
    dirty_ = 0;
    uploaded_ = size_;  // perhaps
  }
  if (capacity_ > capacity) clear();
}

void PointerArray::clear() noexcept {
  array_ = Buffer();
  host_copy_ = Buffer();
  replaced_.clear();
  size_ = capacity_ = dirty_ = uploaded_ = 0;
}

void PointerArray::upload(StreamView stream) {
  if (dirty_ >= size_) return;
  const size_t bytes = static_cast<size_t>(size_ - dirty_) * sizeof(std::byte*);
  device_->copy(array_.as<std::byte*>() + dirty_, host_copy_.as<std::byte*>() + dirty_, bytes,
                CopyKind::kHostToDevice, stream, tag_of(-1, Cause::kControl));
  device_->record(uploads_.view(), stream);
  uploaded_ = std::max(uploaded_, size_);
  dirty_ = size_;
}

uint64_t PointerArray::bytes_of(const Buffer& current) const {
  uint64_t bytes = current.bytes();
  for (const Replaced& one : replaced_) {
    bytes += (one.array.space() == current.space() ? one.array : one.host_copy).bytes();
  }
  return bytes;
}

uint64_t PointerArray::device_bytes() const { return array_ ? bytes_of(array_) : 0; }
uint64_t PointerArray::host_bytes() const { return host_copy_ ? bytes_of(host_copy_) : 0; }

}  // namespace fasa
