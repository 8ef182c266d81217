// Keeps the rows of a layer group in one tier: the pool of their pages, and each sequence's part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "offload/device.h"
#include "offload/fence.h"
#include "offload/pages/block_pool.h"
#include "offload/store/retention.h"
#include "offload/store/row_tier.h"
#include "offload/store/sequence_rows.h"

namespace fasa {

class RowStore {
 public:
  virtual ~RowStore() = default;
  RowStore(const RowStore&) = delete;  // sequences' rows refer to it
  RowStore& operator=(const RowStore&) = delete;

  const LayerGroup& group() const { return group_; }
  TierTraits tier() const { return traits_of(tier_); }
  virtual std::unique_ptr<SequenceRows> open() = 0;
  // True if SequenceRows::attach() is supported.
  bool loads_on_demand() const { return tier_ == RowTier::kDisk; }

  // Hot rows of each sequence over the link, per head; changes while none has any.
  virtual int hot_rows() const { return 0; }
  virtual void set_hot_rows(int /*hot_rows*/) {}
  // Lends copies of pages [first, end) from memory that is free, as far as it goes. For new pages
  // of a step only, because earlier ones already have rows. Never fails for lack of memory.
  virtual void lend_copies(SequenceRows&, int64_t /*first*/, int64_t /*end*/) {}
  virtual uint64_t lent_bytes() const { return 0; }
  // Gives up lent copies, at least one, so that `bytes` bytes are free. Returns false, without any
  // change, if that would not suffice. Waits for all work. The caller uploads the tables of an open
  // step's sequences.
  virtual bool reclaim(MemorySpace, size_t /*bytes*/) { return false; }

  // See BlockPool.
  Fence take_fence() noexcept { return pool_.take_fence(); }
  void trim() noexcept { pool_.trim(); }
  uint64_t bytes() const { return pool_.held_bytes(); }

 protected:
  RowStore(Device& device, RowTier tier, const LayerGroup& group, Fences& fences,
           const char* purpose)
      : group_(group),
        tier_(tier),
        pool_(device, traits_of(tier).space, static_cast<size_t>(group.layout.row_block_bytes()),
              purpose, &fences) {}

  const LayerGroup group_;
  const RowTier tier_;
  BlockPool pool_;
};

}  // namespace fasa
