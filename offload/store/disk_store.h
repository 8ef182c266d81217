// Rows in memory whose contents may come from disk: a sequence gets all its pages, and a step loads
// the rows that it reads (PendingPages). For devices whose work is done when it is enqueued
// (DeviceTraits::done_on_return), because the host reads the sets.
#pragma once

#include <memory>
#include <vector>

#include "offload/store/row_store.h"
#include "offload/store/row_transfers.h"

namespace fasa {

class DiskStore final : public RowStore {
 public:
  // `fences` outlives the store.
  DiskStore(Device& device, const LayerGroup& group, Fences& fences)
      : RowStore(device, RowTier::kDisk, group, fences, "rows") {}

  std::unique_ptr<SequenceRows> open() override;
};

class DiskTransfers final : public RowTransfers {
 public:
  void load_sets(const RowCall& call, const TokenSets& sets) override;
  void load_visible(const RowCall& call) override;

 private:
  std::vector<RowBytes> wanted_;  // a member to keep its capacity
};

}  // namespace fasa
