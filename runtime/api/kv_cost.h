// What a model's KV cache costs per token under each preset and slice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/geometry.h"
#include "runtime/config/config.h"

namespace fasa {

// Bytes per token that grow with the context, over all layers and KV heads. Beside them the device
// holds what does not grow: the newest page, sinks and recent, hot rows, scratch.
struct KvCost {
  std::string preset;
  std::string slice;
  int tip_chunks = 0;
  SliceDType slice_dtype = SliceDType::kInt2;
  double device_bytes = 0;
  double host_bytes = 0;
};

std::vector<KvCost> kv_costs(const Geometry& geometry, RowDType row_dtype);

// Keys and values of one token in 2 bytes each.
uint64_t full_kv_bytes_per_token(const Geometry& geometry);

}  // namespace fasa
