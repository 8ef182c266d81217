#include "runtime/io/json_fields.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace fasa {

using nlohmann::json;

namespace {

// Runs before parsing. Brackets outside strings are counted as the parser would; it reports syntax
// errors later.
void check_depth(std::string_view text, const std::string& name) {
  int depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if ((c == '[' || c == '{') && ++depth > kMaxJsonDepth) {
      throw InputError(
          fmt::format("{}: byte {} of {}: lists and objects are nested {} deep; allowed: {}", name,
                      at + 1, text.size(), depth, kMaxJsonDepth));
    }
  }
}

}  // namespace

template <typename Json>
Json parse_json(std::string_view text, const std::string& name) {
  check_depth(text, name);
  try {
    return Json::parse(text);
  } catch (const typename Json::parse_error& error) {
    throw InputError(
        fmt::format("{}: invalid JSON at byte {} of {}", name, error.byte, text.size()));
  } catch (const typename Json::out_of_range&) {
    throw InputError(
        fmt::format("{}: invalid JSON: a number is too large; allowed: up to 1.7e308", name));
  } catch (const typename Json::exception& error) {
    throw InputError(fmt::format("{}: invalid JSON: {}", name, error.what()));
  }
}

template json parse_json<json>(std::string_view text, const std::string& name);
template nlohmann::ordered_json parse_json<nlohmann::ordered_json>(std::string_view text,
                                                                   const std::string& name);

JsonFields::JsonFields(const json& object, std::string name, std::string prefix)
    : object_(object), name_(std::move(name)), prefix_(std::move(prefix)) {
  if (!object_.is_object()) {
    throw InputError(
        fmt::format("{}: {}not a JSON object", name_, prefix_.empty() ? "" : prefix_ + " is "));
  }
}

bool JsonFields::has(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

bool JsonFields::present(const char* key) const { return object_.contains(key); }

void JsonFields::fail(const char* key, std::string_view allowed) const {
  const auto found = object_.find(key);
  std::string given = "missing";
  if (found != object_.end()) {
    given = found->dump(-1, ' ', true, json::error_handler_t::replace);
    if (given.size() > 80) given = given.substr(0, 77) + "...";
  }
  throw InputError(fmt::format("{}: {}{} = {}; allowed: {}", name_, prefix_, key, given, allowed));
}

int64_t JsonFields::integer(const char* key, int64_t low, int64_t high) const {
  const std::string allowed = fmt::format("an integer from {} to {}", low, high);
  if (!has(key) || !at(key).is_number_integer()) fail(key, allowed);
  const json& value = at(key);
  // Unsigned values above INT64_MAX would become negative.
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    fail(key, allowed);
  }
  const int64_t number = value.get<int64_t>();
  if (number < low || number > high) fail(key, allowed);
  return number;
}

int64_t JsonFields::integer_or(const char* key, int64_t low, int64_t high,
                               int64_t otherwise) const {
  return has(key) ? integer(key, low, high) : otherwise;
}

double JsonFields::number(const char* key, double low, double high) const {
  const std::string allowed = fmt::format("a number from {} to {}", low, high);
  if (!has(key) || !at(key).is_number()) fail(key, allowed);
  const double value = at(key).get<double>();
  if (!(value >= low && value <= high)) fail(key, allowed);
  return value;
}

double JsonFields::number_or(const char* key, double low, double high, double otherwise) const {
  return has(key) ? number(key, low, high) : otherwise;
}

bool JsonFields::boolean_or(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!at(key).is_boolean()) fail(key, "true or false");
  return at(key).get<bool>();
}

std::optional<std::string> JsonFields::text(const char* key) const {
  if (!has(key)) return std::nullopt;
  if (!at(key).is_string()) fail(key, "a text");
  return at(key).get<std::string>();
}

std::string JsonFields::required_text(const char* key) const {
  if (!has(key)) fail(key, "a text");
  return *text(key);
}

}  // namespace fasa
