#include "runtime/text/answer/parameter_type.h"

#include <algorithm>
#include <string_view>

#include "runtime/text/answer/value_reader.h"
#include "runtime/text/grammar/schema_reference.h"

namespace fasa::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxSchemas = 1000;  // read for one parameter

void add_kind(std::string_view type, ParameterKinds& kinds) {
  const bool number = type == "number" || type == "integer";
  bool* const kind = type == "string"    ? &kinds.text
                     : number            ? &kinds.number
                     : type == "boolean" ? &kinds.boolean
                     : type == "null"    ? &kinds.null
                     : type == "object"  ? &kinds.object
                     : type == "array"   ? &kinds.array
                                         : nullptr;
  if (kind == nullptr) return;
  *kind = kinds.known = true;
}

void add_value(const Json& value, ParameterKinds& kinds) {
  add_kind(value.is_string()    ? "string"
           : value.is_number()  ? "number"
           : value.is_boolean() ? "boolean"
           : value.is_null()    ? "null"
           : value.is_object()  ? "object"
                                : "array",
           kinds);
}

void add_schema(const Json& root, const Json& schema, int& left, ParameterKinds& kinds) {
  if (!schema.is_object() || left == 0) return;
  --left;
  const auto at = [&](const char* key) {
    const auto found = schema.find(key);
    return found == schema.end() ? nullptr : &*found;
  };
  if (const Json* const target = at("$ref"); target != nullptr && target->is_string()) {
    const Json* const part = reference_target(root, target->get<std::string>());
    if (part != nullptr) add_schema(root, *part, left, kinds);
  }
  for (const char* const key : {"anyOf", "oneOf", "allOf"}) {
    const Json* const list = at(key);
    if (list == nullptr || !list->is_array()) continue;
    for (const Json& one : *list) add_schema(root, one, left, kinds);
  }
  if (const Json* const type = at("type")) {
    for (const Json& one : type->is_array() ? *type : Json::array({*type})) {
      if (one.is_string()) add_kind(one.get<std::string>(), kinds);
    }
  } else if (const Json* const values = at("enum"); values != nullptr && values->is_array()) {
    for (const Json& value : *values) add_value(value, kinds);
  } else if (const Json* const value = at("const")) {
    add_value(*value, kinds);
  }
  if (const Json* const nullable = at("nullable"); nullable != nullptr && *nullable == true) {
    kinds.null = kinds.known;
  }
}

}  // namespace

bool ParameterKinds::reads_as(const std::string& value, std::string& json) const {
  if (only_text() || !read_value(value, {.python_texts = true}, json)) return false;
  const char first = json[0];
  // A quoted text is a text of its own where texts are allowed, quotes included.
  if (first == '"') return known && !text;
  if (!known) return true;
  if (!text) return true;  // whatever it is: the client checks
  return first == '{'                   ? object
         : first == '['                 ? array
         : first == 'n'                 ? null
         : first == 't' || first == 'f' ? boolean
                                        : number;
}

namespace {

// What a reference, or a list of one part, leads to.
const Json& resolved(const Json& root, const Json& schema) {
  constexpr int kMaxSteps = 32;
  const Json* at = &schema;
  for (int step = 0; step < kMaxSteps && at->is_object(); ++step) {
    const auto reference = at->find("$ref"), parts = at->find("allOf");
    const Json* next = nullptr;
    if (reference != at->end() && reference->is_string()) {
      next = reference_target(root, reference->get<std::string>());
    } else if (parts != at->end() && parts->is_array() && parts->size() == 1) {
      next = &(*parts)[0];
    }
    if (next == nullptr) break;
    at = next;
  }
  return *at;
}

const Json* find_property(const Json& schema, const std::string& name) {
  const auto properties = schema.is_object() ? schema.find("properties") : schema.end();
  if (properties == schema.end() || !properties->is_object()) return nullptr;
  const auto found = properties->find(name);
  return found == properties->end() ? nullptr : &*found;
}

bool is_object_schema(const Json& root, const Json& schema, int& left) {
  const Json& whole = resolved(root, schema);
  if (!whole.is_object() || left == 0) return false;
  --left;
  const auto is_object = [&](const Json& one) { return is_object_schema(root, one, left); };
  if (whole.contains("type")) return whole["type"] == "object";
  for (const char* const key : {"anyOf", "oneOf", "allOf"}) {
    const auto list = whole.find(key);
    if (list == whole.end() || !list->is_array() || list->empty()) continue;
    const bool all = std::all_of(list->begin(), list->end(), is_object);
    if (all ||
        (key == std::string_view("allOf") && std::any_of(list->begin(), list->end(), is_object))) {
      return true;
    }
  }
  return whole.contains("properties") || whole.contains("additionalProperties");
}

}  // namespace

bool is_object_schema(const Json& schema) {
  int left = kMaxSchemas;
  return is_object_schema(schema, schema, left);
}

const Json* find_parameter(const Json& root, const std::string& name) {
  const Json& schema = resolved(root, root);
  const Json* found = find_property(schema, name);
  const bool parts = schema.is_object() && schema.contains("allOf") && schema["allOf"].is_array();
  for (size_t i = 0; parts && found == nullptr && i < schema["allOf"].size(); ++i) {
    found = find_property(resolved(root, schema["allOf"][i]), name);
  }
  return found == nullptr ? nullptr : &resolved(root, *found);
}

ParameterKinds parameter_kinds(const Json& schema, const std::string& name) {
  ParameterKinds kinds;
  const Json* const parameter = find_parameter(schema, name);
  int left = kMaxSchemas;
  if (parameter != nullptr) add_schema(schema, *parameter, left, kinds);
  return kinds;
}

std::vector<std::string> text_values(const Json& schema, const std::string& name) {
  const Json* const parameter = find_parameter(schema, name);
  if (parameter == nullptr || !parameter->is_object()) return {};
  const auto list = parameter->find("enum"), one = parameter->find("const");
  std::vector<std::string> texts;
  if (list != parameter->end() && list->is_array()) {
    for (const Json& value : *list) {
      if (!value.is_string()) return {};
      texts.push_back(value.get<std::string>());
    }
  } else if (one != parameter->end() && one->is_string()) {
    texts.push_back(one->get<std::string>());
  }
  return texts;
}

}  // namespace fasa::text
