// Rows in memory that every kernel can address: on the device, or anywhere on the cpu device.
#pragma once

#include <memory>

#include "offload/store/row_store.h"

namespace fasa {

class LocalStore final : public RowStore {
 public:
  // `purpose` names the rows in budget errors. `fences` outlives the store.
  LocalStore(Device& device, const LayerGroup& group, Fences& fences, const char* purpose)
      : RowStore(device, RowTier::kDevice, group, fences, purpose) {}

  std::unique_ptr<SequenceRows> open() override { return std::make_unique<Rows>(pool_, group_); }

 private:
  struct Rows final : SequenceRows {
    Rows(BlockPool& pool, const LayerGroup& group) : SequenceRows(pool, group) {}
  };
};

}  // namespace fasa
