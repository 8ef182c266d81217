// From a config and a model's geometry to what the step pipeline works by.
#pragma once

#include <cstdint>

#include "runtime/base/geometry.h"
#include "runtime/config/config.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Settings of the sequences API. Layers that see a window beside others that see everything get a layout of
// their own, see StepSettings::window_rows. `traits`: of the device that the steps run on, or of one that
// there may be. `max_context`: the longest sequence expected in tokens, 0 = unknown; the hot rows never
// need to be more. Throws UsageError for what the geometry does not allow.
StepSettings make_step_settings(const Config& config, const Geometry& geometry, RowDType row_dtype,
                                const DeviceTraits& traits, int64_t max_context);
// Settings of the paged API: a caller's pages hold all layers.
StepSettings make_paged_step_settings(const Config& config, const Geometry& geometry,
                                      RowDType row_dtype, const DeviceTraits& traits,
                                      int64_t max_context);

}  // namespace fasa
