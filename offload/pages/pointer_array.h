// An array of block addresses in device memory that follows a host copy: kernels read it, the host
// changes it between steps.
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

  // Room for `entries`, at least doubling. Throws BudgetError; nothing changes then.
  void reserve(int64_t entries);
  // Before entries from `first` on take new values: waits for uploads that still read their old
  // ones. Only after a truncation or a copy on write, so the wait is rare, and it is always done
  // where it may be needed: asking whether the upload has passed would make virtual times depend on
  // real ones.
  void prepare_overwrite(int64_t first);
  // After reserve (and prepare_overwrite, for entries that existed once).
  void append(std::byte* value) noexcept;
  void set(int64_t index, std::byte* value) noexcept;
  void truncate(int64_t entries) noexcept;
  // Entries that there is room for.
  int64_t capacity() const { return capacity_; }
  // Gives back what reserve() took beyond a capacity that it had, which holds all entries; streams are
  // done with what is given back.
  void shrink(int64_t capacity) noexcept;
  void clear() noexcept;  // gives its memory back; streams are done with it

  // Enqueues the copy of what changed; costs nothing where nothing did. Kernels that read the array
  // follow in this stream's order.
  void upload(StreamView stream);

  // In device memory; moves when reserve() grows it, valid after upload(). Null while empty.
  std::byte* const* device_data() const { return array_.as<std::byte*>(); }
  uint64_t device_bytes() const;  // replaced arrays included, here and below
  uint64_t host_bytes() const;

 private:
  uint64_t bytes_of(const Buffer& current) const;

  Device* device_;  // a pointer: tables move
  std::string purpose_;
  Buffer array_;      // device
  Buffer host_copy_;  // host; alive until the stream has passed the upload
  int64_t size_ = 0;
  int64_t capacity_ = 0;
  int64_t dirty_ = 0;     // entries from here on differ from the device's
  int64_t uploaded_ = 0;  // entries of the host copy that uploads may still be reading
  Event uploads_;         // recorded after the last upload
  // Replaced by larger ones, yet streams may still read them. They are kept as long as the array:
  // each is at most half of the next, and freeing them once a stream has passed would make budgets
  // depend on real time.
  struct Replaced {
    Buffer array, host_copy;
    int64_t capacity;
  };
  std::vector<Replaced> replaced_;
};

}  // namespace fasa
