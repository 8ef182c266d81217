// Settings of the paged API.
#pragma once

#include "runtime/api/pages/paged_runtime.h"
#include "runtime/base/geometry.h"
#include "runtime/config/config.h"
#include "scheduler/step_settings.h"

namespace fasa {

// Throws UsageError for a shape or a config that the paged API does not support.
StepSettings paged_settings(const Config& config, const Geometry& geometry, RowDType row_dtype,
                            const DeviceTraits& traits, const PagedShape& shape);

}  // namespace fasa
