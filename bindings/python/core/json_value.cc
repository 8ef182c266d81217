#include "bindings/python/core/json_value.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include "runtime/base/error.h"
#include "runtime/io/json_fields.h"

namespace fasa::python {

using Json = nlohmann::json;

nb::object to_python(const Json& value) {
  if (value.is_boolean()) return nb::bool_(value.get<bool>());
  if (value.is_number_unsigned()) return nb::int_(value.get<uint64_t>());
  if (value.is_number_integer()) return nb::int_(value.get<int64_t>());
  if (value.is_number_float()) return nb::float_(value.get<double>());
  if (value.is_string()) return nb::cast(value.get<std::string>());
  if (value.is_array()) {
    nb::list list;
    for (const Json& element : value) list.append(to_python(element));
    return list;
  }
  if (value.is_object()) {
    nb::dict dict;
    for (const auto& [key, element] : value.items()) dict[key.c_str()] = to_python(element);
    return dict;
  }
  return nb::none();
}

namespace {

// The depth limit also stops lists that contain themselves.
Json convert(nb::handle value, const std::string& name, int depth) {
  if (depth > kMaxJsonDepth) {
    throw UsageError(fmt::format("{}: lists and dicts are nested too deep; allowed: {} levels",
                                 name, kMaxJsonDepth));
  }
  if (value.is_none()) return nullptr;
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  if (nb::isinstance<nb::float_>(value)) return nb::cast<double>(value);
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    Json array = Json::array();
    for (nb::handle element : value) array.push_back(convert(element, name, depth + 1));
    return array;
  }
  if (nb::isinstance<nb::dict>(value)) {
    Json object = Json::object();
    for (const auto& [key, element] : nb::borrow<nb::dict>(value)) {
      object[nb::cast<std::string>(key)] = convert(element, name, depth + 1);
    }
    return object;
  }
  if (PyIndex_Check(value.ptr()) != 0) {
    int64_t integer = 0;
    const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
    if (nb::try_cast(index, integer)) return integer;
    uint64_t large = 0;  // for example a hash
    if (nb::try_cast(index, large)) return large;
    PyErr_Clear();
  }
  if (nb::hasattr(value, "__fspath__")) {
    return nb::cast<std::string>(nb::str(value.attr("__fspath__")()));
  }
  throw UsageError(fmt::format("{} is of type {}; allowed: None, a number, a text or a list", name,
                               nb::inst_name(value).c_str()));
}

}  // namespace

Json to_json(nb::handle value, const std::string& name) { return convert(value, name, 0); }

}  // namespace fasa::python
