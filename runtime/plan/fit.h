// Fits a model and its cache into a device's memory, reducing the cheapest settings first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/device_traits.h"
#include "runtime/base/geometry.h"
#include "runtime/config/config.h"

namespace fasa {

struct FitOptions {
  Geometry geometry;
  Config config;
  RowDType row_dtype = DType::kBF16;
  DeviceTraits traits = kEmulatedTraits;
  uint64_t model_bytes = 0;  // weights and activations
  uint64_t device_memory = UINT64_MAX;
  uint64_t host_memory = UINT64_MAX;
  int64_t tokens = 0;      // requested
  int64_t min_tokens = 1;  // fewer are refused
  int step_tokens = 512;   // largest step
};

struct Fitted {
  Config config;
  int64_t tokens = 0;
  uint64_t device_bytes = 0;
  std::vector<std::string> given_up;  // reductions in order, one sentence each; empty: none needed
};

// Reduces, in this order and only as far as needed, what frees the memory that is short. Host
// memory: rows in int8, tokens. Device memory: hot rows, rows there in int8, fine slices, low-bit
// tokens, slices (to lean ones), tokens. Throws BudgetError with the numbers if `min_tokens` do not
// fit.
Fitted fit(const FitOptions& request);

}  // namespace fasa
