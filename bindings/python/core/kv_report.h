// The memory and fetch statistics of a KV cache as Python dictionaries.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/api/kv_metrics.h"

namespace fasa::python {

inline nlohmann::json memory_json(const KvMemory& memory) {
  return {{"device_slices", memory.device_slices},     {"device_rows", memory.device_rows},
          {"device_hot_rows", memory.device_hot_rows}, {"device_extra", memory.device_extra},
          {"device_scratch", memory.device_scratch},   {"device_states", memory.device_states},
          {"device_total", memory.device_total()},     {"host_rows", memory.host_rows},
          {"host_states", memory.host_states},         {"host_tables", memory.host_tables}};
}

inline nlohmann::json metrics_json(const FetchMetrics& metrics) {
  return {{"decode_steps", metrics.decode_steps},
          {"hit_rate", metrics.hit_rate()},
          {"protected", metrics.rows.protected_rows},
          {"hits", metrics.rows.hits},
          {"misses", metrics.rows.misses},
          {"nan_scores", metrics.rows.nan_scores},
          {"fetched_bytes", metrics.fetched_bytes},
          {"prefetch_accuracy", metrics.prefetch_accuracy()},
          {"prefetch_coverage", metrics.prefetch_coverage()}};
}

}  // namespace fasa::python
