// Rows in host memory that kernels fetch over the link.
#pragma once

#include <memory>
#include <vector>

#include "offload/store/host_rows.h"
#include "offload/store/row_store.h"

namespace fasa {

class HostStore : public RowStore {
 public:
  // `hot_rows`: see RowStore. `fences` outlives the store.
  HostStore(Device& device, const LayerGroup& group, Fences& fences, int hot_rows,
            RowTier tier = RowTier::kHost)
      : RowStore(device, tier, group, fences, "rows"),
        device_(device),
        fences_(fences),
        hot_rows_(hot_rows) {}

  std::unique_ptr<SequenceRows> open() override { return std::make_unique<HostRows>(*this); }
  int hot_rows() const override { return hot_rows_; }
  void set_hot_rows(int hot_rows) override { hot_rows_ = hot_rows; }
  bool lends_copies() const { return tier_ == RowTier::kMirrored; }

 protected:
  friend class HostRows;
  Device& device_;
  Fences& fences_;
  std::vector<HostRows*> sequences_;  // open, the oldest first

 private:
  int hot_rows_;
};

}  // namespace fasa
