// Makes the store of a tier.
#pragma once

#include <memory>

#include "offload/store/local_store.h"
#include "offload/store/row_store.h"

namespace fasa {

// `hot_rows`: of each sequence over the link. `device` and `fences` outlive the store.
std::unique_ptr<RowStore> open_store(RowTier tier, Device& device, const LayerGroup& group,
                                     Fences& fences, int hot_rows);

}  // namespace fasa
