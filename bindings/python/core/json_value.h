// JSON values as Python objects and back: how options and reports cross over.
#pragma once

#include <nanobind/nanobind.h>

#include <nlohmann/json.hpp>

namespace fasa::python {

namespace nb = nanobind;

nb::object to_python(const nlohmann::json& value);
// None, bool, int, float, str, dicts with text keys, lists and tuples of these, and whatever has
// `__fspath__` or `__index__`. Throws UsageError for anything else, and for what is deeper than
// kMaxJsonDepth (runtime/io/json_fields.h); `name` stands for it there.
nlohmann::json to_json(nb::handle value, const std::string& name);

}  // namespace fasa::python
