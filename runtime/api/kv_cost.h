// The KV cache's cost per token of a model, under each preset and slice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/geometry.h"
#include "runtime/config/config.h"

namespace fasa {

// Bytes per token that grow with the context, over all layers and KV heads. The device also holds
// memory of constant size: the newest page, sinks and recent, hot rows, scratch.
struct KvCost {
  std::string preset;
  std::string slice;
  int tip_chunks = 0;
  SliceDType slice_dtype = SliceDType::kInt2;
  double device_bytes = 0;
  double host_bytes = 0;
};

std::vector<KvCost> kv_costs(const Geometry& geometry, RowDType row_dtype);

// Bytes of one token's keys and values at 2 bytes per element, over all layers.
uint64_t full_kv_bytes_per_token(const Geometry& geometry);

}  // namespace fasa
