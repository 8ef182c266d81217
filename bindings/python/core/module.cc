// fasa._core: the cache, its config and its FC maps.
#include <nanobind/nanobind.h>

#include "bindings/python/core/config.h"
#include "bindings/python/core/module_parts.h"
#include "bindings/python/core/paged.h"
#include "bindings/python/core/runtime.h"

NB_MODULE(_core, module) {
  module.doc() = "The C++ part of fasa.";
  fasa::python::add_errors(module);
  fasa::python::add_config(module);
  fasa::python::add_fc_map(module);
  fasa::python::add_runtime(module);
  fasa::python::add_paged(module);
  fasa::python::add_stateless(module);
}
