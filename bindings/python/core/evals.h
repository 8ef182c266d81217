// What `python -m fasa eval` shares with `fasa eval`: tasks, their examples, files of results.
#pragma once

#include <nanobind/nanobind.h>

namespace fasa::python {

void add_evals(nanobind::module_& module);

}  // namespace fasa::python
