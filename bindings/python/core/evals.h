// Code that `python -m fasa eval` shares with `fasa eval`: tasks, examples, files of results.
#pragma once

#include <nanobind/nanobind.h>

namespace fasa::python {

void add_evals(nanobind::module_& module);

}  // namespace fasa::python
