#include "runtime/text/grammar/json_dialect.h"

namespace fasa::text {
namespace {

using Json = nlohmann::ordered_json;

std::string plain(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string dialect_key(const std::string& name, const JsonDialect& dialect) {
  return dialect.quote.empty() ? plain(name) : name;
}

std::string dialect_text(const Json& value, const JsonDialect& dialect) {
  if (dialect.quote.empty()) return plain(value);
  if (value.is_string()) return dialect.quote + value.get<std::string>() + dialect.quote;
  if (!value.is_structured()) return plain(value);
  std::string text;
  for (const auto& [key, item] : value.items()) {
    if (!text.empty()) text += ",";
    if (value.is_object()) text += key + ":";
    text += dialect_text(item, dialect);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

}  // namespace fasa::text
