// Derives the settings of steps from a config and a model's geometry.
#pragma once

#include <cstdint>

#include "runtime/base/geometry.h"
#include "runtime/config/config.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Settings of the sequences API. In models with windowed and full layers, the windowed ones get a
// layout of their own (StepSettings::window_rows). `traits`: of the device that steps run on, or of
// a planned one. `max_context`: tokens of the longest sequence expected, 0 = unknown; it limits hot
// rows. Throws UsageError for settings that the geometry does not allow.
StepSettings make_step_settings(const Config& config, const Geometry& geometry, RowDType row_dtype,
                                const DeviceTraits& traits, int64_t max_context);
// Settings of the paged API, in which a caller's pages hold all layers.
StepSettings make_paged_step_settings(const Config& config, const Geometry& geometry,
                                      RowDType row_dtype, const DeviceTraits& traits,
                                      int64_t max_context);

}  // namespace fasa
