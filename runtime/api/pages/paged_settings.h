// Settings of the paged API.
#pragma once

#include <cstdint>

#include "kernels/hot_slots.h"
#include "runtime/base/geometry.h"
#include "runtime/config/config.h"
#include "scheduler/step_settings.h"

namespace fasa {

struct PagedShape {
  int page_size = 64;     // tokens: 64, 128, 192 or 256
  int64_t num_pages = 0;  // rows are allocated at once; from 64 tokens on, slices too
  // Sequences whose hot rows are kept: the largest number expected in flight. More share them in
  // turn.
  int max_sequences = 64;
  int32_t max_steps = kMaxSteps;  // as in Runtime
};

// Throws UsageError for a shape or a config that the paged API does not support.
StepSettings paged_settings(const Config& config, const Geometry& geometry, RowDType row_dtype,
                            const DeviceTraits& traits, const PagedShape& shape);

}  // namespace fasa
