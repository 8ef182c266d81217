// Copies of row pages on the device (placement.rows = auto): dealt out when a step has all that it
// needs, given up before anything else is refused memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/api/sequences/runtime_parts.h"

namespace fasa {

class RowCopies {
 public:
  explicit RowCopies(const RuntimeParts& parts) : parts_(parts) {}

  // Last of all that a step takes memory for: nothing here can fail for memory. Pages that begin
  // with this step only, for the others have rows already.
  void copy_new_pages(std::span<const StepSequence> sequences);
  // See MemoryReclaimer.
  bool reclaim(MemorySpace space, size_t bytes);

 private:
  struct Bytes {
    uint64_t rows = 0;
    uint64_t tables = 0;
  };
  Bytes held() const;
  DeviceRows* max_copies(DeviceRows* growing) const;
  Buffer find_block(DeviceRows& growing, bool& drained);
  bool could_fit(size_t bytes) const;
  void give_up(size_t bytes);
  void drop_tables();

  const RuntimeParts parts_;
};

}  // namespace fasa
