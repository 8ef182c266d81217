// The parts of fasa._studies.
#pragma once

#include <nanobind/nanobind.h>

namespace fasa::python {

// fasa.calibrate and fasa.plan.
void add_studies(nanobind::module_& module);
// Code that `python -m fasa eval` shares with `fasa eval`: tasks, examples, files of results.
void add_evals(nanobind::module_& module);

}  // namespace fasa::python
