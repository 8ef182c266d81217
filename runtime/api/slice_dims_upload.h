// The key dimensions that slices hold, from a caller's list to device memory.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/device.h"
#include "runtime/base/geometry.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Throws UsageError where their number or one of them does not fit. Without slices anything does.
void check_slice_dims(const std::vector<int16_t>& slice_dims, const StepSettings& settings,
                      const Geometry& geometry);
// Checked ones of the layers that have slices; waits for `stream`.
Buffer upload_slice_dims(Device& device, const std::vector<int16_t>& slice_dims,
                         const StepSettings& settings, StreamView stream);

}  // namespace fasa
