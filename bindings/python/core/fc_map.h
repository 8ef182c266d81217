// fasa.FcMap, and making one from captured queries and keys.
#pragma once

#include <nanobind/nanobind.h>

namespace fasa::python {

void add_fc_map(nanobind::module_& module);

}  // namespace fasa::python
