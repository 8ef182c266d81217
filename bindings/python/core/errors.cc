#include "bindings/python/core/module_parts.h"

#include <array>
#include <string>

#include "runtime/base/error.h"

namespace fasa::python {
namespace {

namespace nb = nanobind;

// By ErrorKind, from kUsage on. Never released: they live as long as the process.
std::array<PyObject*, 4> classes{};

PyObject* class_of(ErrorKind kind) {
  return classes[static_cast<size_t>(static_cast<int>(kind) - static_cast<int>(ErrorKind::kUsage))];
}

void set_budget_error(const BudgetError& error) {
  nb::object value = nb::handle(class_of(error.kind()))(nb::str(error.what()));
  value.attr("limit") = nb::str(error.limit().c_str());
  value.attr("asked_bytes") = nb::int_(error.asked_bytes());
  value.attr("capacity_bytes") = nb::int_(error.capacity_bytes());
  PyErr_SetObject(class_of(error.kind()), value.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const BudgetError& error) {
    set_budget_error(error);
  } catch (const Error& error) {
    PyErr_SetString(class_of(error.kind()), error.what());
  }
}

PyObject* add_class(nb::module_& module, const char* name, const char* doc, nb::handle bases) {
  const std::string path = std::string("fasa.") + name;
  PyObject* made = PyErr_NewExceptionWithDoc(path.c_str(), doc, bases.ptr(), nullptr);
  if (made == nullptr) throw nb::python_error();
  module.attr(name) = nb::handle(made);
  return made;
}

}  // namespace

void add_errors(nb::module_& module) {
  PyObject* base = add_class(module, "Error", "Base class of all errors that fasa raises.",
                             nb::handle(PyExc_Exception));
  const auto below = [&](const char* name, const char* doc, PyObject* builtin) {
    return add_class(module, name, doc, nb::make_tuple(nb::handle(base), nb::handle(builtin)));
  };
  classes = {below("UsageError", "A call or a config is invalid.", PyExc_ValueError),
             below("InputError", "A model, FC map or text file is invalid.", PyExc_ValueError),
             below("BudgetError",
                   "A memory limit is too small. Attributes: limit, asked_bytes, capacity_bytes.",
                   PyExc_MemoryError),
             below("DeviceError", "An operation failed on a device.", PyExc_RuntimeError)};
  nb::register_exception_translator(translate);
}

}  // namespace fasa::python
