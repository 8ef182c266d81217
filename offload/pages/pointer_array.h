// An array of block addresses in device memory with a host copy: kernels read it, the host changes
// it between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "offload/device.h"

namespace fasa {

class PointerArray {
 public:
  PointerArray(Device& device, std::string purpose);

  int64_t size() const { return size_; }
  std::span<std::byte* const> values() const {
    return {host_copy_.as<std::byte*>(), static_cast<size_t>(size_)};
  }

  // Reserves `entries` entries, at least doubling. Throws BudgetError; then nothing changes.
  void reserve(int64_t entries);
  // Call before entries from `first` on change: waits for uploads that still read the old values.
  // Needed only after a truncation or a copy on write, so the wait is rare. It always waits if
  // needed: a query of the upload would make virtual times depend on real ones.
  void prepare_overwrite(int64_t first);
  // Call after reserve (and prepare_overwrite, for entries that existed before).
  void append(std::byte* value) noexcept;
  void set(int64_t index, std::byte* value) noexcept;
  void truncate(int64_t entries) noexcept;
  // Number of allocated entries.
  int64_t capacity() const { return capacity_; }
  // Frees memory that reserve() added beyond an earlier capacity, which holds all entries; streams
  // must be done with it.
  void shrink(int64_t capacity) noexcept;
  void clear() noexcept;  // frees its memory; streams must be done with it

  // Enqueues the copy of changed entries; free if there are none. Kernels that read the array must
  // follow in this stream.
  void upload(StreamView stream);

  // Device address of the array; moves when reserve() grows it, valid after upload(). Null while
  // empty.
  std::byte* const* device_data() const { return array_.as<std::byte*>(); }
  uint64_t device_bytes() const;  // replaced arrays included, here and below
  uint64_t host_bytes() const;

 private:
  uint64_t bytes_of(const Buffer& current) const;

  Device* device_;  // a pointer, because tables move
  std::string purpose_;
  Buffer array_;      // device
  Buffer host_copy_;  // host; alive until the stream has passed the upload
  int64_t size_ = 0;
  int64_t capacity_ = 0;
  int64_t dirty_ = 0;     // first entry that differs from the device's
  int64_t uploaded_ = 0;  // entries of the host copy that uploads may still read
  Event uploads_;         // recorded after the last upload
  // Arrays that larger ones replaced but streams may still read. They are freed with the array:
  // each is at most half of the next, and freeing them earlier would make budgets depend on real
  // time.
  struct Replaced {
    Buffer array, host_copy;
    int64_t capacity;
  };
  std::vector<Replaced> replaced_;
};

}  // namespace fasa
