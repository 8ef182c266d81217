// Device copies of a sequence's row pages, and the address array that kernels read. The rows on the
// host stay complete, so freeing a copy changes only this table. Copies are either all that kernels
// read (HostRows::copied), or lent while memory is free; then a page is copied from its
// first row on or not at all. A copy that kernels read has all rows of its page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "offload/device.h"
#include "offload/pages/pointer_array.h"

namespace fasa {

class DeviceCopies {
 public:
  explicit DeviceCopies(Device& device)
      : device_(&device), addresses_(device, "tables of device copies") {}

  int64_t pages() const { return addresses_.size(); }  // entries; a page may have no copy
  int64_t copies() const { return copies_; }
  bool has(int64_t page) const { return page < pages() && blocks()[static_cast<size_t>(page)]; }
  std::span<std::byte* const> blocks() const { return addresses_.values(); }  // null: no copy

  // Reserves entries for `pages` pages. Throws BudgetError; then nothing changes.
  void reserve(int64_t pages);
  // Adds the copy of a reserved page that has none.
  void put(int64_t page, Buffer block);
  // Removes and returns the first copy; empty if there is none. Its memory may still be in use.
  Buffer take_oldest();
  // Allocates copies of pages up to `pages`, all in one table. Throws BudgetError; then the copies
  // made so far stay.
  void grow(int64_t pages, int64_t block_bytes);
  // Frees the copies of pages [first, end). Their last use must have passed, here and below.
  void drop(int64_t first, int64_t end);
  void truncate(int64_t pages) noexcept;
  int64_t capacity() const { return addresses_.capacity(); }
  // Shrinks the table to `capacity`, or to the copies if they need more.
  void shrink(int64_t capacity) noexcept {
    if (pages() <= capacity) addresses_.shrink(capacity);
  }
  // Also frees the table's memory.
  void clear();

  void upload(StreamView stream) { addresses_.upload(stream); }
  std::byte* const* device_data() const { return addresses_.device_data(); }
  uint64_t copy_bytes() const;
  uint64_t table_bytes() const { return addresses_.device_bytes(); }
  uint64_t host_table_bytes() const { return addresses_.host_bytes(); }

 private:
  Device* device_;
  PointerArray addresses_;
  std::vector<Buffer> buffers_;  // by page
  int64_t copies_ = 0;
  int64_t oldest_ = 0;  // no page below has a copy
};

}  // namespace fasa
