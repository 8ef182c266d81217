// Rows in memory whose contents may come from disk: a sequence gets all its pages, and a step loads
// the rows that it reads (PendingPages). For devices whose work is done when it is enqueued
// (DeviceTraits::done_on_return), because the host reads the sets.
#pragma once

#include <memory>

#include "offload/store/row_store.h"

namespace fasa {

class DiskStore final : public RowStore {
 public:
  // `fences` outlives the store.
  DiskStore(Device& device, const LayerGroup& group, Fences& fences)
      : RowStore(device, RowTier::kDisk, group, fences, "rows") {}

  std::unique_ptr<SequenceRows> open() override;
};

}  // namespace fasa
