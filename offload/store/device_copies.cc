#include "offload/store/device_copies.h"

#include <algorithm>
#include <utility>

namespace fasa {

void DeviceCopies::reserve(int64_t pages) {
  if (static_cast<size_t>(pages) > buffers_.capacity()) {
    buffers_.reserve(std::max(static_cast<size_t>(pages), 2 * buffers_.capacity()));
  }
  addresses_.reserve(pages);
}

void DeviceCopies::put(int64_t page, Buffer block) {
  addresses_.prepare_overwrite(std::min(page, pages()));
  while (pages() <= page) {
    addresses_.append(nullptr);
    buffers_.emplace_back();
  }
  addresses_.set(page, block.data());
  buffers_[static_cast<size_t>(page)] = std::move(block);
  ++copies_;
  oldest_ = std::min(oldest_, page);
}

Buffer DeviceCopies::take_oldest() {
  if (copies_ == 0) return {};
  while (!has(oldest_)) ++oldest_;
  addresses_.prepare_overwrite(oldest_);
  addresses_.set(oldest_, nullptr);
  --copies_;
  return std::move(buffers_[static_cast<size_t>(oldest_++)]);
}

void DeviceCopies::grow(int64_t pages, int64_t block_bytes) {
  reserve(pages);
  for (int64_t page = this->pages(); page < pages; ++page) {
    put(page,
        device_->allocate(MemorySpace::kDevice, static_cast<size_t>(block_bytes), "row pages"));
  }
}

void DeviceCopies::drop(int64_t first, int64_t end) {
  addresses_.prepare_overwrite(std::min(first, pages()));
  for (int64_t page = first; page < std::min(end, pages()); ++page) {
    if (!has(page)) continue;
    addresses_.set(page, nullptr);
    buffers_[static_cast<size_t>(page)] = Buffer();
    --copies_;
  }
}

void DeviceCopies::truncate(int64_t pages) noexcept {
  while (this->pages() > pages) {
    if (buffers_.back()) --copies_;
    buffers_.pop_back();
    addresses_.truncate(this->pages() - 1);
  }
  oldest_ = std::min(oldest_, pages);
}

void DeviceCopies::clear() {
  truncate(0);
  addresses_ = PointerArray(*device_, "tables of device copies");
}

uint64_t DeviceCopies::copy_bytes() const {
  uint64_t bytes = 0;
  for (const Buffer& buffer : buffers_) bytes += buffer.bytes();
  return bytes;
}

}  // namespace fasa
