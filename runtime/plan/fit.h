// Makes a model and its cache fit a device's memory by giving up what costs least.
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
  int64_t tokens = 0;      // wanted
  int64_t min_tokens = 1;  // fewer are of no use
  int step_tokens = 512;   // of the largest step
};

struct Fitted {
  Config config;
  int64_t tokens = 0;
  uint64_t device_bytes = 0;
  std::vector<std::string> given_up;  // in order, a sentence each; none: it fits as it is
};

// In this order, each only as far as it takes: hot rows, low-bit tokens, slices (lean ones for
// larger ones), tokens. Throws BudgetError with the numbers where `min_tokens` do not fit.
Fitted fit(const FitOptions& request);

}  // namespace fasa
