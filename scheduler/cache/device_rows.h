// Copies of a sequence's row pages in device memory, and the array of their addresses that kernels
// read. The rows on the host stay complete, so giving a copy up changes this table and nothing
// else. A page that has a copy has all of its rows in it: it gets one when it begins, or never.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "offload/device.h"
#include "offload/pages/pointer_array.h"

namespace fasa {

class DeviceRows {
 public:
  explicit DeviceRows(Device& device) : device_(&device), addresses_(device, "device row tables") {}

  int64_t pages() const { return addresses_.size(); }  // entries, with or without a copy
  int64_t copies() const { return copies_; }
  bool has(int64_t page) const { return page < pages() && blocks()[static_cast<size_t>(page)]; }
  std::span<std::byte* const> blocks() const { return addresses_.values(); }  // null: no copy

  // Room for entries of `pages` pages. Throws BudgetError; nothing changes then.
  void reserve(int64_t pages);
  // A page within the reserved ones that has none.
  void put(int64_t page, Buffer block);
  // The copy of the lowest position; empty where there is none. Streams must be idle.
  Buffer take_oldest();
  // The copies below page `end`. Streams must be idle.
  void drop(int64_t end);
  // Streams must be idle where copies go.
  void truncate(int64_t pages) noexcept;
  int64_t capacity() const { return addresses_.capacity(); }
  // Of the table, unless copies are beyond that.
  void shrink(int64_t capacity) noexcept {
    if (pages() <= capacity) addresses_.shrink(capacity);
  }
  // Gives back the memory of the table, too. Streams must be idle.
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
