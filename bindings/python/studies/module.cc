// fasa._studies: what needs models: calibration, plans, evaluations.
#include <nanobind/nanobind.h>

#include "bindings/python/studies/module_parts.h"

NB_MODULE(_studies, module) {
  nanobind::module_::import_("fasa._core");  // has Config and the classes of errors
  module.doc() = "The C++ part of fasa that needs models.";
  fasa::python::add_studies(module);
  fasa::python::add_evals(module);
}
