// Converts between JSON values and Python objects, for options and reports.
#pragma once

#include <nanobind/nanobind.h>

#include <nlohmann/json.hpp>

namespace fasa::python {

namespace nb = nanobind;

nb::object to_python(const nlohmann::json& value);
// Converts None, bool, int, float, str, dicts with str keys, lists and tuples of these, and objects
// with `__fspath__` or `__index__`. Throws UsageError for other types and for nesting deeper than
// kMaxJsonDepth (runtime/io/json_fields.h); `name` names the value in the message.
nlohmann::json to_json(nb::handle value, const std::string& name);

}  // namespace fasa::python
