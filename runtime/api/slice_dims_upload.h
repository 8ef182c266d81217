// Checks the key dimensions of slices, and uploads them to device memory.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/device.h"
#include "runtime/base/geometry.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Throws UsageError if their count or one of them is wrong. Without slices, everything passes.
void check_slice_dims(const std::vector<int16_t>& slice_dims, const StepSettings& settings,
                      const Geometry& geometry);
// Uploads checked dimensions of the layers with slices. Waits for `stream`.
Buffer upload_slice_dims(Device& device, const std::vector<int16_t>& slice_dims,
                         const StepSettings& settings, StreamView stream);

}  // namespace fasa
