// Rows on the host, with copies of their pages on the device (placement.rows = auto). Copies are
// made from memory that is left when a step has all that it needs; they are freed before any other
// allocation fails.
#pragma once

#include "offload/store/host_store.h"

namespace fasa {

class MirroredStore final : public HostStore {
 public:
  MirroredStore(Device& device, const LayerGroup& group, Fences& fences, int hot_rows)
      : HostStore(device, group, fences, hot_rows, RowTier::kMirrored) {}

  void lend_copies(SequenceRows& rows, int64_t first, int64_t end) override;
  uint64_t lent_bytes() const override { return held().rows; }
  bool reclaim(MemorySpace space, size_t bytes) override;

 private:
  struct Bytes {
    uint64_t rows = 0;
    uint64_t tables = 0;
  };
  Bytes held() const;
  HostRows* max_copies(HostRows* growing) const;
  Buffer find_block(HostRows& growing);
  bool could_fit(size_t bytes) const;
  void give_up(size_t bytes);
};

}  // namespace fasa
