// The parts of fasa._core that have no classes of their own in C++.
#pragma once

#include <nanobind/nanobind.h>

namespace fasa::python {

// fasa.Error and its subclasses UsageError (also a ValueError), InputError, BudgetError (also a
// MemoryError) and DeviceError. Messages are those of the `fasa` command.
void add_errors(nanobind::module_& module);
// fasa.FcMap, and making one from captured queries and keys.
void add_fc_map(nanobind::module_& module);
// fasa.sparse_decode: attention without a cache.
void add_stateless(nanobind::module_& module);

}  // namespace fasa::python
