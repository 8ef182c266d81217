// JSON with texts between marks of their own and bare keys: {key:<|"|>text<|"|>,n:1}.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fasa::text {

struct JsonDialect {
  std::string quote = {};  // around texts, which have no escapes; "": plain JSON
};

std::string dialect_text(const nlohmann::ordered_json& value, const JsonDialect& dialect);
std::string dialect_key(const std::string& name, const JsonDialect& dialect);

}  // namespace fasa::text
