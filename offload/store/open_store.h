// Makes the store of a tier, and its transfers.
#pragma once

#include <memory>

#include "offload/store/local_store.h"
#include "offload/store/row_store.h"
#include "offload/store/row_transfers.h"

namespace fasa {

// `hot_rows`: of each sequence over the link. `device` and `fences` outlive the store.
std::unique_ptr<RowStore> open_store(RowTier tier, Device& device, const LayerGroup& group,
                                     Fences& fences, int hot_rows);
// `device` outlives the transfers.
std::unique_ptr<RowTransfers> open_transfers(RowTier tier, Device& device,
                                             const TransferSizes& sizes);

}  // namespace fasa
