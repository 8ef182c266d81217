// fasa.sparse_decode: the API without a cache.
#pragma once

#include <nanobind/nanobind.h>

namespace fasa::python {

void add_stateless(nanobind::module_& module);

}  // namespace fasa::python
