// The library's errors as Python exceptions.
#pragma once

#include <nanobind/nanobind.h>

namespace fasa::python {

// fasa.Error and its subclasses UsageError (also a ValueError), InputError, BudgetError (also a
// MemoryError) and DeviceError. Messages are those of the `fasa` command.
void add_errors(nanobind::module_& module);

}  // namespace fasa::python
