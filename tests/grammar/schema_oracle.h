// Validates a value against a schema directly by the specification, one keyword at a time.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/utf8.h"

namespace fasa::text {

class SchemaOracle {
 public:
  using Json = nlohmann::ordered_json;
  explicit SchemaOracle(const Json& root) : root_(root) {}

  bool holds(const Json& value) const { return holds(root_, value); }

  bool holds(const Json& schema, const Json& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    if (schema.contains("$ref")) return holds(target(schema["$ref"]), value);
    if (schema.contains("type") && !has_type(schema["type"], value)) return false;
    if (schema.contains("const") && schema["const"] != value) return false;
    if (schema.contains("enum") && !is_in(schema["enum"], value)) return false;
    const auto matching = [&](const Json& list) {
      int count = 0;
      for (const Json& one : list) count += holds(one, value) ? 1 : 0;
      return count;
    };
    if (schema.contains("anyOf") && matching(schema["anyOf"]) == 0) return false;
    if (schema.contains("oneOf") && matching(schema["oneOf"]) != 1) return false;
    if (schema.contains("allOf") &&
        matching(schema["allOf"]) != static_cast<int>(schema["allOf"].size())) {
      return false;
    }
    if (value.is_object() && !object_holds(schema, value)) return false;
    if (value.is_array() && !array_holds(schema, value)) return false;
    if (value.is_string() && !string_holds(schema, value.get<std::string>())) return false;
    return !value.is_number() || number_holds(schema, value.get<double>());
  }

 private:
  const Json& target(const Json& reference) const {
    const auto text = reference.get<std::string>();
    return text == "#" ? root_ : root_.at(Json::json_pointer(text.substr(1)));
  }
  static bool is_in(const Json& list, const Json& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  }
  static bool has_type(const Json& type, const Json& value) {
    if (type.is_array()) {
      return std::any_of(type.begin(), type.end(),
                         [&](const Json& one) { return has_type(one, value); });
    }
    const auto name = type.get<std::string>();
    if (name == "object") return value.is_object();
    if (name == "array") return value.is_array();
    if (name == "string") return value.is_string();
    if (name == "boolean") return value.is_boolean();
    if (name == "null") return value.is_null();
    if (name == "number") return value.is_number();
    return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  }
  bool object_holds(const Json& schema, const Json& value) const {
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) return false;
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [name, member] : value.items()) {
      if (properties.contains(name)) {
        if (!holds(schema["properties"][name], member)) return false;
      } else if (schema.contains("additionalProperties")) {
        if (!holds(schema["additionalProperties"], member)) return false;
      }
    }
    return true;
  }
  bool array_holds(const Json& schema, const Json& value) const {
    if (value.size() < schema.value("minItems", size_t{0})) return false;
    if (value.size() > schema.value("maxItems", SIZE_MAX)) return false;
    const Json first = schema.value("prefixItems", Json::array());
    for (size_t i = 0; i < value.size(); ++i) {
      if (i < first.size() ? !holds(first[i], value[i])
                           : schema.contains("items") && !holds(schema["items"], value[i])) {
        return false;
      }
    }
    return true;
  }
  static bool string_holds(const Json& schema, const std::string& text) {
    size_t characters = 0;
    for (const char byte : text) characters += continues_character(byte) ? 0 : 1;
    return characters >= schema.value("minLength", size_t{0}) &&
           characters <= schema.value("maxLength", SIZE_MAX);
  }
  static bool number_holds(const Json& schema, double value) {
    return value >= schema.value("minimum", -1e300) && value <= schema.value("maximum", 1e300) &&
           value > schema.value("exclusiveMinimum", -1e300) &&
           value < schema.value("exclusiveMaximum", 1e300);
  }

  const Json& root_;
};

}  // namespace fasa::text
