// fasa.sparse_decode: attention without a cache.
#pragma once

#include <nanobind/nanobind.h>

namespace fasa::python {

void add_stateless(nanobind::module_& module);

}  // namespace fasa::python
