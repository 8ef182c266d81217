// The key dimensions of the slices of a runtime opened from Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/geometry.h"
#include "runtime/config/config.h"

namespace fasa::python {

namespace nb = nanobind;

// "f32", "f16", "bf16", "int8". Throws UsageError.
RowDType row_dtype_of(const std::string& name);

// `slice_dims` if given, else the map's first chunks, else all chunks; None means not given. Throws
// UsageError.
std::vector<int16_t> choose_slice_dims(const Config& config, const Geometry& geometry,
                                       const nb::object& fc_map, const nb::object& slice_dims);

}  // namespace fasa::python
