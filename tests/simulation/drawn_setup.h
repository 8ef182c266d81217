// The setup that a seed draws: a geometry, a config, limits, a source of predictions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/geometry.h"
#include "runtime/config/config.h"

namespace fasa::testing {

enum class DrawnSource : uint8_t { kNone, kQueries, kAnything };

struct DrawnSetup {
  Geometry geometry;
  Config config;
  RowDType row_dtype = DType::kBF16;
  std::vector<int16_t> slice_dims;
  DrawnSource prediction_source = DrawnSource::kNone;
  int64_t max_tokens = 320;       // per sequence
  bool rollback_windows = false;  // sequences have one; they are longer, so that pages are freed
  bool drafts = false;            // decode steps of several tokens
  bool unified = false;           // one tier, as on the cpu device
  // Bytes; nullopt = no limit. Another user holds a changing part of the device's memory.
  std::optional<uint64_t> device_memory;
  std::optional<uint64_t> host_memory;
  std::optional<uint64_t> pinned_memory;
  int new_memory = 0;  // the byte that fills new memory
};

DrawnSetup drawn_setup(uint64_t seed);
std::string describe(const DrawnSetup& setup);  // one line

}  // namespace fasa::testing
