// Copies of row pages on the device (placement.rows = auto). A step makes them from memory that is
// left when it has all that it needs; they are freed before any other allocation fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/api/sequences/runtime_parts.h"

namespace fasa {

class RowCopies {
 public:
  explicit RowCopies(const RuntimeParts& parts) : parts_(parts) {}

  // Call it last when a step allocates memory: it cannot fail for lack of memory. Copies only pages
  // that begin with this step, because earlier pages already have rows.
  void copy_new_pages(std::span<const StepSequence> sequences);
  // Implements MemoryReclaimer.
  bool reclaim(MemorySpace space, size_t bytes);

 private:
  struct Bytes {
    uint64_t rows = 0;
    uint64_t tables = 0;
  };
  Bytes held() const;
  KvSequence* max_copies(KvSequence* growing) const;
  Buffer find_block(KvSequence& growing);
  bool could_fit(size_t bytes) const;
  void give_up(size_t bytes);
  void drop_tables();

  const RuntimeParts parts_;
};

}  // namespace fasa
