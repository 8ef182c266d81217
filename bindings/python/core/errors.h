// The library's errors as Python exceptions.
#pragma once

#include <nanobind/nanobind.h>

namespace fasa::python {

// fasa.Error and below it UsageError (a ValueError), InputError, BudgetError (a MemoryError) and
// DeviceError, with the texts of the `fasa` command.
void add_errors(nanobind::module_& module);

}  // namespace fasa::python
