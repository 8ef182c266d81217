// The kinds of values that a function's schema allows for a parameter.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fasa::text {

struct ParameterKinds {
  bool text = false, number = false, boolean = false, null = false, object = false, array = false;
  bool known = false;  // the schema says it; else any kind

  bool only_text() const {
    return known && text && !number && !boolean && !null && !object && !array;
  }
  // Whether the text is a value of another kind than text, and the value's JSON. Python's words and
  // texts count too.
  bool reads_as(const std::string& text, std::string& json) const;
};

// Whether all values of the parameters' schema are objects.
bool is_object_schema(const nlohmann::ordered_json& schema);
// The schema of a parameter, behind references; null if there is none. `schema`: of the function's
// parameters; null: none.
const nlohmann::ordered_json* find_parameter(const nlohmann::ordered_json& schema,
                                             const std::string& name);
ParameterKinds parameter_kinds(const nlohmann::ordered_json& schema, const std::string& name);
// The texts that the schema lists for a parameter; none: it does not list texts alone.
std::vector<std::string> text_values(const nlohmann::ordered_json& schema, const std::string& name);

}  // namespace fasa::text
