#include "offload/store/open_store.h"

#include "offload/store/disk_store.h"
#include "offload/store/host_transfers.h"
#include "offload/store/mirrored_store.h"

namespace fasa {

std::unique_ptr<RowStore> open_store(RowTier tier, Device& device, const LayerGroup& group,
                                     Fences& fences, int hot_rows) {
  switch (tier) {
    case RowTier::kDevice:
      break;
    case RowTier::kDisk:
      return std::make_unique<DiskStore>(device, group, fences);
    case RowTier::kHost:
      return std::make_unique<HostStore>(device, group, fences, hot_rows);
    case RowTier::kMirrored:
      return std::make_unique<MirroredStore>(device, group, fences, hot_rows);
  }
  return std::make_unique<LocalStore>(device, group, fences, "rows");
}

std::unique_ptr<RowTransfers> open_transfers(RowTier tier, Device& device,
                                             const TransferSizes& sizes) {
  if (traits_of(tier).access == RowAccess::kOverLink)
    return std::make_unique<HostTransfers>(device, sizes);
  if (tier == RowTier::kDisk) return std::make_unique<DiskTransfers>();
  return std::make_unique<RowTransfers>();
}

}  // namespace fasa
