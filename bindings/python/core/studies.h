// fasa.calibrate and fasa.plan.
#pragma once

#include <nanobind/nanobind.h>

namespace fasa::python {

void add_studies(nanobind::module_& module);

}  // namespace fasa::python
